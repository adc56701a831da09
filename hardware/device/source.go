package device

// A Source is where a figure or a rule comes from.
type Source struct {
	Kind  string // of evidence, such as "vendor documentation" or "source code"
	Title string
	Ref   string // URL, or repository at a commit and path
}

// The kinds of evidence.
const (
	documented = "vendor documentation"
	sourceCode = "source code"
	computed   = "computed from documented rates"
	thirdParty = "third-party table"
)

// The sources of the tables.
var (
	sheetL40S = Source{documented, "NVIDIA L40S data sheet; dense rates are half of the sparse ones",
		"https://www.nvidia.com/en-us/data-center/l40s/"}
	sheetH100 = Source{documented, "NVIDIA H100 data sheet; dense rates are half of the sparse ones",
		"https://www.nvidia.com/en-us/data-center/h100/"}
	sheetH200 = Source{documented, "NVIDIA H200 data sheet; dense rates are half of the sparse ones",
		"https://www.nvidia.com/en-us/data-center/h200/"}
	sheetHGX   = Source{documented, "NVIDIA HGX B200 data sheet", "https://www.nvidia.com/en-us/data-center/hgx/"}
	sheetGB200 = Source{documented, "NVIDIA GB200 NVL72 data sheet", "https://www.nvidia.com/en-us/data-center/gb200-nvl72/"}
	tablesB300 = Source{thirdParty, "table of B300 and GB300; not checked against NVIDIA's sheets",
		"https://glennklockwood.com/garden/processors/B300"}
	newsRTXPro = Source{thirdParty, "announcement of RTX PRO 6000 Blackwell",
		"https://gpu.name/posts/nvidia-unveils-rtx-pro-6000-blackwell-gpu-with-24-064-cores-and-96gb-memory"}
	sheetMI300X = Source{documented, "AMD Instinct MI300X data sheet",
		"https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"}
	sheetMI350X = Source{documented, "AMD Instinct MI350X data sheet",
		"https://www.amd.com/en/products/accelerators/instinct/mi350/mi350x.html"}
	sheetMI355X = Source{documented, "AMD Instinct MI355X data sheet",
		"https://www.amd.com/en/products/accelerators/instinct/mi350/mi355x.html"}
	ratesCDNA = Source{computed, "compute units × clock × operations per clock of the CDNA3 and CDNA4 documentation",
		"https://www.amd.com/en/technologies/cdna.html"}
	docCUBLAS    = Source{documented, "cuBLAS documentation, cublasLtMatmul and its scaling modes", "https://docs.nvidia.com/cuda/cublas/"}
	docHipBLASLt = Source{documented, "hipBLASLt API reference, hipblasLtMatmul",
		"https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/api-reference.html"}
	docHipTypes = Source{documented, "hipBLASLt data type support",
		"https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/data-type-support.html"}
	docCUTLASS = Source{documented, "CUTLASS, Blackwell SM100 GEMMs",
		"https://docs.nvidia.com/cutlass/media/docs/cpp/blackwell_functionality.html"}
	codeTE = Source{sourceCode, "Transformer Engine, check_recipe_support",
		"github.com/NVIDIA/TransformerEngine@001597e transformer_engine/pytorch/quantization.py"}
	codeTEGemm = Source{sourceCode, "Transformer Engine, cublaslt_gemm.cu and nvte_is_non_tn_fp8_gemm_supported",
		"github.com/NVIDIA/TransformerEngine@d0067d0 transformer_engine/common/gemm/cublaslt_gemm.cu"}
	docTE = Source{documented, "Transformer Engine, performance considerations: handling transposes",
		"https://nvidia.github.io/TransformerEngine/features/low_precision_training/performance_considerations/performance_considerations.html"}
	docTEMXFP8 = Source{documented, "Transformer Engine, MXFP8",
		"https://nvidia.github.io/TransformerEngine/features/low_precision_training/mxfp8/mxfp8.html"}
	codeMegatron = Source{sourceCode, "Megatron-LM, fp8_utils.py", "github.com/NVIDIA/Megatron-LM@d98e8a64 megatron/core/fp8_utils.py"}
	codePyTorch  = Source{sourceCode, "PyTorch, ScaledBlas", "github.com/pytorch/pytorch aten/src/ATen/native/cuda/ScaledBlas.cpp"}
)

// A Figure is a number with its source.
type Figure struct {
	Value  float64
	Source *Source // nil: unknown
	Note   string  // how it was computed, or why it is unknown
}

// Known reports whether the figure has a source.
func (f Figure) Known() bool { return f.Source != nil }

func figure(v float64, s *Source) Figure { return Figure{Value: v, Source: s} }

func noted(v float64, s *Source, note string) Figure { return Figure{v, s, note} }

func unknown(why string) Figure { return Figure{Note: why} }
