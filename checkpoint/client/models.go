package client

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/quant"
)

// This file has the rules about architectures: what a client cannot run in a format that it
// reads. They use only names, shapes, formats and global scales of weights, so they apply to
// a planned checkpoint too.

// Limits returns what the clients that load the scheme of m without converting it would
// reject or misread because of its architecture: one line for each client. m may be planned:
// Limits reads its Convention, Scheme, Source and the names, shapes, formats and global
// scales of its Weights. A global scale that is not known yet is 0.
func Limits(m *checkpoint.Model) (lines []string) {
	for _, c := range clients {
		if c.imports || !c.Reads(m.Convention.Name, m.Scheme) {
			continue
		}
		for _, limit := range c.limits {
			switch problems := limit(m); len(problems) {
			case 0:
			case 1:
				lines = append(lines, fmt.Sprintf("%s: %s", c.Name, problems[0]))
			default:
				lines = append(lines, fmt.Sprintf("%s: %s (and %d more weights)", c.Name, problems[0], len(problems)-1))
			}
		}
	}
	return lines
}

// eachQuantized returns a problem with a rule for every quantized weight of which why returns one.
func eachQuantized(m *checkpoint.Model, rule string, why func(w *checkpoint.Weight) string) (problems []checkpoint.Problem) {
	for _, w := range m.Weights {
		if !w.Quantized() {
			continue
		}
		if text := why(w); text != "" {
			problems = append(problems, checkpoint.Problem{Rule: rule, Tensor: w.Name, Text: text})
		}
	}
	return problems
}

// unlistedExperts: the client expects quantized experts unless their module is on the ignore list.
func unlistedExperts(m *checkpoint.Model) (problems []checkpoint.Problem) {
	for _, w := range m.ExpertsUnlisted() {
		problems = append(problems, checkpoint.Problem{Rule: "unquantized-unlisted", Tensor: w.Name,
			Text: "it holds the experts of a layer, which are neither quantized nor on the ignore list; the client would look for their scales: " +
				"quantize again"})
	}
	return problems
}

// expertsDecoded: the client joins the experts of compressed-tensors into one tensor while
// it decodes them. It omits the global scale of NVFP4, multiplies FP8 codes by scales of
// another shape without repeating them, and takes E8M0 bytes for numbers
// (CompressedTensorsDequantize in integrations/compressed_tensors.py of transformers 5.23;
// its issue 48371).
func expertsDecoded(m *checkpoint.Model) []checkpoint.Problem {
	if m.Convention.Name != "compressed-tensors" {
		return nil
	}
	return eachQuantized(m, "hf-moe-global", func(w *checkpoint.Weight) string {
		const instead = "choose mxfp4 or fp8-row"
		b := w.Format.Block
		switch {
		case !family.SingleExpert(w.Name):
			return ""
		case w.Format.Global && w.Global != 1:
			return "the client omits the global scales of experts, whose values become too large without an error: " + instead
		case b.Rows > 1 && (w.Shape[0] > int64(b.Rows) || w.Shape[1] > int64(b.Cols)):
			return fmt.Sprintf("the client does not load experts with scales of %d×%d blocks: %s, or convention deepseek", b.Rows, b.Cols, instead)
		case w.Format.Name == quant.MXFP8.Name:
			return "the client does not load experts in mxfp8, or misreads them if rows have one block: " + instead
		}
		return ""
	})
}

// stackedExperts are the models whose experts the client holds as one tensor a layer, without a rule that
// joins single ones as it loads (the classes with such parameters in models/ of transformers 5.24, less
// the models of conversion_mapping.py that join experts).
var stackedExperts = []string{
	"aria", "aria_text", "dbrx", "deepseek_ocr2_text", "diffusion_gemma", "diffusion_gemma_text", "dots3_note", "dots3_note_text",
	"gemma4", "gemma4_text", "gpt_oss", "granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared", "hy_v4", "hy_v4_vl",
	"inkling_mm_model", "inkling_text", "inkling2", "inkling2_loop", "inkling2_loop_text", "inkling2_text", "jetmoe", "lara_mini",
	"llama4", "llama4_text", "mistral4", "muse_spark", "muse_spark_text", "openai_privacy_filter", "qwen3_vl_moe", "qwen3_vl_moe_text",
	"step3p5", "step3p7", "unlimited_ocr", "unlimited_ocr_text", "zaya",
}

// expertsJoined: the client finds no single experts of stackedExperts in a file, and initializes them at random.
func expertsJoined(m *checkpoint.Model) []checkpoint.Problem {
	if !m.Family().OfType(stackedExperts...) {
		return nil
	}
	return eachQuantized(m, "experts-layout", func(w *checkpoint.Weight) string {
		if family.SingleExpert(w.Name) {
			return "the client holds the experts of this model as one tensor, and joins no single ones: exclude the experts"
		}
		return ""
	})
}

// otherStacks are those of stackedExperts whose experts transformers holds in other tensors than gate_up_proj and
// down_proj, with biases, or in an order that it changes as it loads.
var otherStacks = []string{"dbrx", "gpt_oss", "jetmoe", "openai_privacy_filter", "qwen3_vl_moe", "qwen3_vl_moe_text", "step3p5"}

// A Joint is the place of a weight of one expert in the tensor of all experts of its layer.
type Joint struct {
	Tensor      string
	Expert      int
	Part, Parts int  // of the rows of an expert: gate and up are in one tensor
	Transposed  bool // the tensor is [experts, in, out]
}

var expertProjection = regexp.MustCompile(`^(.+\.experts)\.([0-9]{1,6})\.(gate|up|down)_proj\.weight$`)

// Join returns where transformers has a weight of a single expert of m, if it holds the experts of the model in one
// tensor a layer and joins no single ones. ok is false for other weights and models.
func Join(m *checkpoint.Model, weight string) (j Joint, ok bool) {
	parts := expertProjection.FindStringSubmatch(weight)
	if parts == nil || !m.Family().OfType(stackedExperts...) || m.Family().OfType(otherStacks...) {
		return Joint{}, false
	}
	expert, err := strconv.Atoi(parts[2])
	row := m.Family().StackRow()
	j = Joint{Tensor: parts[1] + "." + family.DownExperts, Expert: expert, Parts: 1, Transposed: row != nil && row.Transposed}
	if parts[3] != "down" {
		j.Tensor, j.Parts = parts[1]+"."+family.GateUpExperts, 2
	}
	if parts[3] == "up" {
		j.Part = 1
	}
	return j, err == nil
}

// Unjoined returns a note if transformers holds the experts of the model in one tensor a layer and m has single
// ones, which neither it nor Join joins; "" otherwise.
func Unjoined(m *checkpoint.Model) string {
	i := slices.IndexFunc(m.Weights, func(w *checkpoint.Weight) bool {
		_, joined := Join(m, w.Name)
		return family.SingleExpert(w.Name) && !joined
	})
	if i < 0 || !m.Family().OfType(stackedExperts...) {
		return ""
	}
	return fmt.Sprintf("transformers does not load %s: it holds the experts of this model in one tensor a layer, joins no single ones, "+
		"and initializes them at random: load the result with another client, or use the original checkpoint", m.Weights[i].Name)
}

// expertsUnpacked: where experts are single tensors, the client decodes them all if the format has
// 4 bits, and finds no codes of an unquantized one (the same function).
func expertsUnpacked(m *checkpoint.Model) (problems []checkpoint.Problem) {
	formats := m.Formats()
	i := slices.IndexFunc(formats, func(f quant.Format) bool { return f.Element.Bits() == 4 })
	if m.Convention.Name != "compressed-tensors" || i < 0 {
		return nil
	}
	for _, w := range m.Weights {
		if !w.Quantized() && family.SingleExpert(w.Name) {
			problems = append(problems,
				checkpoint.Problem{Rule: "experts-layout", Tensor: w.Name,
					Text: fmt.Sprintf("the client does not load unquantized experts beside other weights in %s: quantize the experts, too, or the "+
						"model to 8 bits", formats[i])})
		}
	}
	return problems
}

// initialized are the linear modules whose weights the client initializes through their parents before it
// loads any (_init_weights of the classes of transformers 5.24). A module whose codes are packed has no weight then.
var initialized = []struct {
	modelTypes []string
	modules    []string
}{
	{[]string{"mamba", "mamba2", "falcon_mamba"}, []string{"out_proj"}},
	{[]string{"t5", "mt5", "umt5", "longt5", "switch_transformers", "udop", "pop2piano"}, []string{"q", "k", "v", "o", "wi", "wi_0", "wi_1",
		"wo"}},
	{[]string{"pix2struct"}, []string{"query", "key", "value", "output", "wi_0", "wi_1", "wo"}},
	{[]string{"recurrent_gemma"}, []string{"q_proj", "k_proj", "v_proj", "o_proj", "linear_x", "linear_y", "linear_out"}},
	{[]string{"nanochat"}, []string{"o_proj"}},
	{[]string{"neomme"}, []string{"o_proj", "down_proj"}},
	{[]string{"altclip", "chinese_clip", "clipseg", "groupvit", "kosmos-2", "mlcd", "owlv2", "owlvit", "siglip", "siglip2", "xclip"},
		[]string{"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}},
	{[]string{"detr", "maskformer"}, []string{"q_proj", "k_proj"}},
}

// initializedWeights: the client fails where the codes of a module of initialized are packed, under another name than weight.
func initializedWeights(m *checkpoint.Model) []checkpoint.Problem {
	if m.Convention.Name != "compressed-tensors" {
		return nil
	}
	whole, text := m.Source.ModelType()
	return eachQuantized(m, "initialized-weight", func(w *checkpoint.Weight) string {
		module := strings.TrimSuffix(w.Name, ".weight")
		for _, row := range initialized {
			name := module[strings.LastIndexByte(module, '.')+1:]
			if !slices.Contains(row.modules, name) || !slices.Contains(row.modelTypes, whole) && !slices.Contains(row.modelTypes, text) {
				continue
			}
			c, err := m.Convention.With(w.Format, m.SchemeOf(w.Format))
			if err == nil && c.Stored(w.Format, w.Name, w.Shape)[0].Name != w.Name {
				return "the client initializes its weight before it loads the codes, and a packed module has none: choose mxfp8 or fp8-row"
			}
		}
		return ""
	})
}

// mamba1 matches the projections of a Mamba mixer of the first version.
var mamba1 = regexp.MustCompile(`\.(mamba|mixer)\.(in_proj|x_proj|dt_proj|out_proj)\.weight$`)

// plainMamba: the client builds these projections without a quantization
// (layers/mamba/mamba_mixer.py of vLLM 0.32).
func plainMamba(m *checkpoint.Model) []checkpoint.Problem {
	if !m.Family().OfType("mamba", "falcon_mamba", "jamba") {
		return nil
	}
	return eachQuantized(m, "mamba1", func(w *checkpoint.Weight) string {
		if mamba1.MatchString(w.Name) {
			return "the client loads the projections of Mamba-1 unquantized only: exclude them"
		}
		return ""
	})
}

// renamedExperts: the client renames entries of the ignore list that end in down_proj, as it does
// tensors of gpt-oss, and then finds the experts quantized in part (hf_to_vllm_mapper in
// models/gpt_oss.py of vLLM 0.32). It finds them by patterns.
func renamedExperts(m *checkpoint.Model) []checkpoint.Problem {
	if m.Convention.Name != "compressed-tensors" || !m.Family().OfType("gpt_oss") {
		return nil
	}
	patterns := slices.DeleteFunc(slices.Clone(m.Ignore), func(entry string) bool { return !strings.HasPrefix(entry, "re:") })
	listed := m.Convention.Ignored(patterns)
	if !slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool {
		return family.SingleExpert(w.Name) || slices.ContainsFunc(w.ExpertModules(), func(module string) bool { return !listed(module) })
	}) {
		return nil
	}
	return []checkpoint.Problem{{Rule: "gpt-oss-experts", Text: "the client does not load gpt-oss in compressed-tensors, because it does " +
		"not find its experts on the ignore list: choose convention gpt-oss"}}
}

// expertsOfFP8: the client has no method for experts of FP8 with a scale for each tensor and inputs without stored scales in
// compressed-tensors, nor for those with scales of rows in modelopt (CompressedTensorsW8A8Fp8MoEMethod and ModelOptFp8MoEMethod of vLLM
// 0.32, by running).
func expertsOfFP8(m *checkpoint.Model) []checkpoint.Problem {
	var f quant.Format
	var why string
	switch {
	case m.Convention.Name == "modelopt":
		f, why = quant.FP8Row, "the client does not load experts in fp8-row in modelopt: choose convention compressed-tensors"
	case m.Convention.Name == "compressed-tensors" && m.ActivationsIn(quant.FP8Tensor) != checkpoint.Static:
		f, why = quant.FP8Tensor, "the client loads such experts only with stored scales of activations: choose fp8-row, or calibrate"
	default:
		return nil
	}
	return eachQuantized(m, "experts-layout", func(w *checkpoint.Weight) string {
		if w.Format.Name == f.Name && family.SingleExpert(w.Name) {
			return why
		}
		return ""
	})
}

// denseMXFP4: the client reads MXFP4 of compressed-tensors in experts alone (SGLang 0.5.23).
func denseMXFP4(m *checkpoint.Model) []checkpoint.Problem {
	if m.Convention.Name != "compressed-tensors" {
		return nil
	}
	return eachQuantized(m, "unread", func(w *checkpoint.Weight) string {
		if w.Format.Name == quant.MXFP4.Name && !family.SingleExpert(w.Name) {
			return "the client reads mxfp4 in experts only, and other linear layers in fp8 or nvfp4: exclude it, or choose convention quark"
		}
		return ""
	})
}

// splitKeyValue: the client splits kv_b_proj as it loads, and expects the biases of an affine
// quantization (sanitize in models/deepseek_v3.py and others of mlx-lm 0.32).
func splitKeyValue(m *checkpoint.Model) []checkpoint.Problem {
	if !m.Family().OfType("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_k2", "kimi_k3") {
		return nil
	}
	return eachQuantized(m, "mlx-kv_b", func(w *checkpoint.Weight) string {
		if strings.HasSuffix(w.Name, ".kv_b_proj.weight") {
			return "the client reads kv_b_proj unquantized or in affine formats only: exclude it"
		}
		return ""
	})
}

// unstackedScales: the client has one tensor for the experts of a layer. Of single ones it joins the weights of
// some models, and of these with their scales (sanitize in mlx_lm/models at 0.32.2).
func unstackedScales(m *checkpoint.Model) []checkpoint.Problem {
	if m.Family().OfType("afmoe", "bailing_moe", "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe",
		"glm4_moe_lite", "jamba", "kimi_k2", "laguna", "longcat_flash", "mimo_v2_flash", "mixtral", "olmoe", "phimoe", "qwen2_moe") {
		return nil
	}
	return eachQuantized(m, "experts-layout", func(w *checkpoint.Weight) string {
		if family.SingleExpert(w.Name) && !w.Joined {
			return "the client does not join the scales of single experts of this model, and rejects the file: exclude the experts"
		}
		return ""
	})
}

// unscaledGraph: the client ignores global scales in some or all layers of the architecture.
func unscaledGraph(m *checkpoint.Model) []checkpoint.Problem {
	architecture := m.Family().UnscaledGraph(m.Architecture)
	if architecture == "" {
		return nil
	}
	return eachQuantized(m, "gguf-scale-unused", func(w *checkpoint.Weight) string {
		if w.Format.Global && w.Global != 1 {
			return fmt.Sprintf("the graph of %s ignores global scales, and its results become NaN or wrong: choose mxfp4, or scales of blocks "+
				"alone (profile ggml)", architecture)
		}
		return ""
	})
}
