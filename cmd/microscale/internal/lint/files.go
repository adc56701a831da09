package lint

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// fileRules are about the files and the configuration of modelopt.
var fileRules = []Rule{
	{
		ID: "L21", Name: "config-file-contradiction", Severity: Error, check: contradictions,
		What:   "hf_quant_config.json and config.json describe modules differently",
		Why:    "vLLM and SGLang read the one, TensorRT-LLM the other",
		Remedy: "`repair`, which writes both from the tensors",
		Source: "vllm#25706",
	},
	{
		ID: "L22", Name: "algo-unknown", Severity: Error, clients: []string{"vllm"}, check: unknownAlgos,
		explains: []string{unsupported, structure, unread},
		What:     "a module of MIXED_PRECISION has an algorithm that the client does not know",
		Why:      "the client loads the module as unquantized, without an error",
		Remedy:   "quantize these modules to another format",
		Source:   "layers/quantization/modelopt.py of vLLM 0.32",
	},
	{
		ID: "L23", Name: "algo-case", Severity: Error,
		What:   "quant_algo differs from the name that the client knows in upper and lower case",
		Why:    "the client does not recognize it",
		Remedy: "`repair`",
		Source: "tensorrt_llm/quantization/mode.py",
	},
	{
		ID: "L35", Name: "index", Severity: Error, check: indexes,
		What:   "the index contradicts the files: it lacks tensors, or names tensors that are elsewhere or nowhere",
		Why:    "clients leave out tensors or fail, and some load those that the index does not have, too, over others",
		Remedy: "`repair`, which writes it from the headers",
		Source: "vllm#54230",
	},
	{
		ID: "L58", Name: "block-scale-shape", Severity: Error, clients: []string{"vllm", "trtllm"}, check: blockScaleShapes,
		What:   "scales of 128×128 blocks of modelopt have two dimensions",
		Why:    "the client has a parameter of [rows, 1, columns, 1], and rejects the file",
		Remedy: "`repair`",
		Source: "layers/quantization/modelopt.py of vLLM 0.32",
	},
	{
		ID: "L48", Name: "sidecar-missing", Severity: Error,
		What:   "the file from which the client reads the configuration is missing, or names no quantization",
		Why:    "the client loads the checkpoint as unquantized",
		Remedy: "`repair`",
		Source: "TensorRT-LLM",
	},
}

// indexes compares the index with the headers.
func indexes(c *checker) {
	shards := c.Source.Shards()
	if c.Source.Single || c.Source.Remote() || !c.Source.Index || len(shards) == 0 {
		return
	}
	index, err := safetensors.ReadIndex(filepath.Join(filepath.Dir(shards[0].File.Name()), safetensors.IndexName))
	if err != nil {
		c.err = err
		return
	}
	for _, t := range c.Source.Tensors() {
		switch file, ok := index.WeightMap[t.Name]; {
		case !ok:
			c.report(t.Name, "it is in %s and not in the index", t.Shard.Name)
		case file != t.Shard.Name:
			c.report(t.Name, "the index has it in %s, and it is in %s", file, t.Shard.Name)
		}
		delete(index.WeightMap, t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		c.report(name, "the index has it in %s, and no file has it", index.WeightMap[name])
	}
}

func blockScaleShapes(c *checker) {
	for _, w := range c.Weights {
		if t, ok := twoDimensions(w); ok && modelOpt.Is(c.Convention) {
			c.report(t.Name, "it is %v, and the client needs four dimensions", t.Shape)
		}
	}
}

// twoDimensions returns the scales of a weight of 128×128 blocks if they have two dimensions.
func twoDimensions(w *checkpoint.Weight) (t hf.Tensor, ok bool) {
	t, ok = w.Part(checkpoint.Scales)
	return t, ok && w.Quantized() && w.Format.Name == quant.FP8Block.Name && len(t.Shape) == 2
}

// vllmAlgos are the algorithms that vLLM 0.32 knows in quantized_layers, in lower case.
var vllmAlgos = []string{"fp8", "fp8_per_channel_per_token", "fp8_pb_wo", "fp8_block_scales", "nvfp4", "w4a16_nvfp4", "mxfp8",
	"iq2_xs", "iq2_xxs", "q8_0"}

func unknownAlgos(c *checker) {
	if !strings.EqualFold(c.algo(), modelOpt.MixedScheme()) {
		return
	}
	for _, module := range slices.Sorted(maps.Keys(c.config.layers)) {
		if algo := c.config.layers[module].Algo; !slices.Contains(vllmAlgos, strings.ToLower(algo)) {
			c.report(module, "its algorithm is %q, which the client does not know, and loads it as unquantized", algo)
		}
	}
}

// algo returns quant_algo of the file that is read first.
func (c *checker) algo() string {
	for _, s := range []*sidecar{c.config.main, c.config.sidecar} {
		if s != nil {
			return s.Algo
		}
	}
	return ""
}

// contradictions compares what both files say of the modules that exist.
func contradictions(c *checker) {
	a, b := c.config.main, c.config.sidecar
	if a == nil || b == nil {
		return
	}
	if !strings.EqualFold(a.Algo, b.Algo) {
		c.report("", "quant_algo is %q in config.json and %q in %s", a.Algo, b.Algo, modelOpt.Sidecar())
		return
	}
	if a.GroupSize != 0 && b.GroupSize != 0 && a.GroupSize != b.GroupSize {
		c.report("", "group_size is %d in config.json and %d in %s", a.GroupSize, b.GroupSize, modelOpt.Sidecar())
	}
	if strings.EqualFold(a.Algo, modelOpt.MixedScheme()) {
		for _, module := range slices.Sorted(maps.Keys(a.Layers)) {
			if other, ok := b.Layers[module]; ok && !strings.EqualFold(a.Layers[module].Algo, other.Algo) {
				c.report(module, "its algorithm is %q in config.json and %q in %s", a.Layers[module].Algo, other.Algo, modelOpt.Sidecar())
			}
		}
		c.compareModules(inMap(a.Layers), inMap(b.Layers), "among quantized_layers")
		return
	}
	if c.Convention == nil { // an algorithm that is not known: rule unsupported
		return
	}
	c.compareModules(c.Convention.Ignored(append(a.Ignore, a.Exclude...)), c.Convention.Ignored(append(b.Exclude, b.Ignore...)),
		"on the list of unquantized modules")
}

func inMap(layers map[string]layer) func(string) bool {
	return func(module string) bool { _, ok := layers[module]; return ok }
}

// compareModules reports modules of linear weights that one file has on a list and the other has not.
func (c *checker) compareModules(inConfig, inSidecar func(string) bool, where string) {
	for _, w := range c.Weights {
		if len(w.Shape) != 2 || !w.Quantized() && !c.Family().Linear(w.Name, w.Shape) || !strings.HasSuffix(w.Name, weightSuffix) {
			continue
		}
		switch module := moduleOf(w.Name); inConfig(module) {
		case inSidecar(module):
		case true:
			c.report(w.Name, "it is %s in config.json and not in %s", where, modelOpt.Sidecar())
		default:
			c.report(w.Name, "it is %s in %s and not in config.json", where, modelOpt.Sidecar())
		}
	}
}
