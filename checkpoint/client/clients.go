// Package client lists the programs that load quantized checkpoints: the schemes that each
// reads, and the checkpoints that it rejects or misreads although the convention allows them.
// Unknown behavior is not a rule.
//
// Problem.Rule is a row of microscale lint, which says more about it.
package client

import (
	"fmt"
	"index/suffixarray"
	"slices"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// A Client is a program that loads checkpoints.
type Client struct {
	Name    string
	Doc     string
	reads   map[string][]string // schemes by convention; nil: all of them
	mixes   []string            // conventions of which it reads several schemes in one checkpoint
	rules   []rule
	limits  []rule   // about architectures, not about how a checkpoint is stored (models.go)
	imports bool     // it reads most conventions only to convert them to its own
	stores  []string // conventions to write for it, the preferred one first
	bf16    bool     // it decodes codes with scales of one byte to BF16, whatever the dtype of the model is
}

// A rule returns what a client would reject or misread, as problems.
type rule func(m *checkpoint.Model) []checkpoint.Problem

// clients is the table. Its sources are the loaders of 2026, or the documentation and issues of
// loaders whose code was not read completely.
var clients = []Client{
	{
		Name: "vllm", Doc: "vLLM", stores: []string{"compressed-tensors", "modelopt", "quark", "gpt-oss"},
		mixes: []string{"compressed-tensors", "modelopt", "quark"},
		reads: map[string][]string{"compressed-tensors": nil, "deepseek": nil, "gpt-oss": nil, "quark": nil, "torchao": nil,
			"modelopt": {"MXFP8", "W4A16_NVFP4", "NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "fp8_pb_wo", "MIXED_PRECISION"},
			"fbgemm":   nil, "mistral": nil, "fp-quant": nil,
			"auto-round": {"mx_fp4", "mx_fp_rceil4", "mx_fp8", "mx_fp_rceil8", "fp8"}},
		rules: []rule{unlistedExperts, fusedTogether, fusedGlobals, wholeShards, columnsOf(quant.FP8Block, int64(quant.FP8Block.Block.Cols)),
			excludedBySubstring("modelopt"), exactExcludes("quark")},
		limits: []rule{plainMamba, renamedExperts, expertsOfFP8},
	},
	{
		Name: "sglang", Doc: "SGLang", stores: []string{"quark", "compressed-tensors", "modelopt", "gpt-oss"},
		mixes: []string{"compressed-tensors", "modelopt"},
		reads: map[string][]string{
			"compressed-tensors": {"MXFP4A16", "MXFP4", "NVFP4A16", "NVFP4", "FP8_TOKEN", "FP8", "FP8_DYNAMIC", "FP8_BLOCK", "W4A16", "W8A16",
				"W8A8"},
			"modelopt": {"MXFP8", "W4A16_NVFP4", "NVFP4", "FP8"},
			"deepseek": nil, "gpt-oss": nil, "quark": {"fp4"},
		},
		rules: []rule{unlistedExperts, fusedTogether, fusedGlobals, wholeShards, columnsOf(quant.FP8Block, int64(quant.FP8Block.Block.Cols)),
			excludedBySubstring("compressed-tensors", "modelopt"), exactExcludes("quark"), denseMXFP4, mixedWithNVFP4},
	},
	{
		Name: "trtllm", Doc: "TensorRT-LLM", stores: []string{"modelopt"}, mixes: []string{"modelopt", "compressed-tensors"},
		reads: map[string][]string{"deepseek": nil, "gpt-oss": nil,
			// get_quant_method in tensorrt_llm/_torch/modules/linear.py
			"modelopt":           {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "fp8_pb_wo", "NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8", "W4A8_MXFP4_FP8"},
			"compressed-tensors": {"MXFP4A16", "NVFP4", "FP8_DYNAMIC", "FP8_BLOCK"}}, // tensorrt_llm/models/quant_config_utils.py
		rules: []rule{unlistedExperts, fusedTogether, fusedGlobals, needsFile("modelopt"), exactScheme("modelopt")},
	},
	{
		Name: "transformers", Doc: "Hugging Face transformers", stores: []string{"compressed-tensors", "mxfp8", "deepseek", "gpt-oss"},
		reads: map[string][]string{"compressed-tensors": nil, "deepseek": nil, "mxfp8": nil, "gpt-oss": nil, "torchao": nil,
			"fbgemm": nil, "fp-quant": nil},
		mixes:  []string{"compressed-tensors"},
		bf16:   true,
		rules:  []rule{evenBlocks("deepseek"), groupedInputs, tiedHead, movedModules, decodedToBF16},
		limits: []rule{expertsJoined, expertsDecoded, expertsUnpacked, initializedWeights},
	},
	{
		Name: "llamacpp", Doc: "llama.cpp, and its converter of Hugging Face checkpoints", imports: true, stores: []string{"gguf"},
		mixes: []string{"gguf"},
		reads: map[string][]string{
			// dequant_model in conversion/base.py of llama.cpp at 1 October 2026: one group, float and int in rows or blocks, packed
			// integers in groups. Those in rows have the scheme of those in groups, W8A16, which is left out for them.
			"compressed-tensors": {"NVFP4A16", "NVFP4", "FP8_DYNAMIC", "FP8_BLOCK", "FP8_BLOCK_A16", "W4A16", "W4AFP8", "W8A8"},
			"modelopt":           {"NVFP4", "W4A16_NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN"},
			"deepseek":           nil, "gpt-oss": nil, "gguf": nil,
		},
		rules:  []rule{columnsOf(quant.NVFP4, 64)},
		limits: []rule{unscaledGraph},
	},
	{
		Name: "mlx", Doc: "mlx-lm", stores: []string{"mlx", "gpt-oss"}, mixes: []string{"mlx"},
		// It rejects NVFP4 of compressed-tensors. load_model (mlx_lm/utils.py at 0.32.2) knows the format of config.json, but no
		// sanitize of mlx_lm/models maps tensors such as weight_global_scale: the review of its pull request 1334, which added the
		// format, asked to leave that out. TestConformanceMLX of interop loads such files.
		reads:  map[string][]string{"mlx": nil, "gpt-oss": nil},
		rules:  []rule{noGlobal("mlx", "the client's modules have none and reject the file")}, // mlx.nn.Module.load_weights
		limits: []rule{splitKeyValue, unstackedScales},
	},
	{
		Name: "ollama", Doc: "Ollama, and its import of safetensors for MLX", imports: true, stores: []string{"gguf"},
		mixes: []string{"gguf", "mlx"},
		// prequantPatterns in x/create/prequant.go of Ollama at 21 August 2026
		reads: map[string][]string{"compressed-tensors": {"NVFP4A16", "NVFP4"}, "modelopt": {"NVFP4", "W4A16_NVFP4"}, "mlx": nil, "deepseek": nil,
			"gguf": nil},
		rules: []rule{noGlobal("mlx", "it is not known how the client interprets it")},
	},
}

// All returns the clients in their order.
func All() []Client { return slices.Clone(clients) }

// Lookup finds a client by its name. Case and dots are ignored: "llama.cpp" is
// "llamacpp".
func Lookup(name string) (Client, error) {
	names := make([]string, len(clients))
	for i, c := range clients {
		names[i] = c.Name
		if strings.EqualFold(c.Name, strings.ReplaceAll(name, ".", "")) {
			return c, nil
		}
	}
	return Client{}, naming.Unknown("client", name, names)
}

// String returns the client's name.
func (c Client) String() string { return c.Name }

// Reads reports whether the client reads a scheme of a convention.
func (c Client) Reads(convention, scheme string) bool {
	schemes, ok := c.reads[convention]
	return ok && (schemes == nil || slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, scheme) }))
}

// Rejects returns what the client would reject or misread in a checkpoint: nothing in one
// that is not quantized.
func (c Client) Rejects(m *checkpoint.Model) []checkpoint.Problem {
	var problems []checkpoint.Problem
	if text := c.unread(m); text != "" {
		problems = []checkpoint.Problem{{Rule: "unread", Text: text}}
	} else if m.Convention != nil {
		for _, r := range slices.Concat(c.rules, c.limits) {
			problems = append(problems, r(m)...)
		}
	}
	for i := range problems {
		problems[i].Text = c.Name + ": " + problems[i].Text
	}
	return problems
}

// unread says which scheme of a checkpoint the client does not read, or that it does not read several; "" if it reads it.
func (c Client) unread(m *checkpoint.Model) string {
	if m.Convention == nil {
		return c.unreadGGUF(m)
	}
	name, formats := m.Convention.Name, m.Formats()
	if len(formats) < 2 {
		if c.Reads(name, m.Scheme) {
			return ""
		}
		return fmt.Sprintf("it does not read %s: it reads %s", strings.TrimSpace(name+" "+m.Scheme), c.readable(m))
	}
	for _, f := range formats {
		if scheme := m.SchemeOf(f); !c.Reads(name, scheme) {
			return fmt.Sprintf("it does not read %s, which the %s weights have: quantize them to another format",
				strings.TrimSpace(name+" "+scheme), f)
		}
	}
	if !slices.Contains(c.mixes, name) {
		return fmt.Sprintf("it reads one block format in a checkpoint of convention %s, and this one has %s and %s", name, formats[0], formats[1])
	}
	return ""
}

// unreadGGUF says that the client does not read GGUF files, of a checkpoint that is one without a block format; "" if it does.
func (c Client) unreadGGUF(m *checkpoint.Model) string {
	gguf := checkpoint.GGUF().Name
	if m.Source.GGUF == nil || c.Reads(gguf, "") {
		return ""
	}
	for _, w := range m.Weights {
		if !w.Decoded() {
			continue
		}
		if q, err := ggml.LookupQuant(strings.ToUpper(w.FormatName())); err == nil {
			return fmt.Sprintf("it does not read %s %s: it reads %s", gguf, q.Name, c.readable(m))
		}
	}
	return "it does not read GGUF files: dequantize writes a directory, without loss"
}

// readable lists the conventions that the client reads, with schemes of the checkpoint's
// block format if it reads any, and says whether they hold the global scales of the weights.
func (c Client) readable(m *checkpoint.Model) string {
	var f quant.Format // of the first quantized weight
	if formats := m.Formats(); len(formats) > 0 {
		f = formats[0]
	}
	var same, all []string
	lost := slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool { return w.Format.Global && w.Global != 1 })
	for _, convention := range checkpoint.Conventions() {
		if _, ok := c.reads[convention.Name]; !ok {
			continue
		}
		all = append(all, convention.Name)
		if f.Element == nil {
			continue
		}
		for _, scheme := range convention.Schemes(f) {
			if c.Reads(convention.Name, scheme) {
				same = append(same, convention.Name+" "+scheme)
				lost = lost && !convention.ReadsGlobal(f)
			}
		}
	}
	if len(same) > 0 && lost {
		return strings.Join(same, ", ") + ", without global scales: quantize the original for it"
	}
	if len(same) > 0 {
		return strings.Join(same, ", ") + ", to which it can be converted"
	}
	return strings.Join(all, ", ")
}

// eachFused calls f with the weights of each fused matrix (family.Model.Joined) of which the
// checkpoint has more than one part.
func eachFused(m *checkpoint.Model, f func(weights []*checkpoint.Weight)) {
	matrices := map[string][]*checkpoint.Weight{}
	var order []string
	for _, w := range m.Weights {
		if len(w.Shape) != 2 {
			continue
		}
		matrix, _ := m.Family().Joined(w.Name)
		if matrices[matrix] == nil {
			order = append(order, matrix)
		}
		matrices[matrix] = append(matrices[matrix], w)
	}
	for _, matrix := range order {
		if weights := matrices[matrix]; len(weights) > 1 {
			slices.SortFunc(weights, func(a, b *checkpoint.Weight) int {
				_, i := m.Family().Joined(a.Name)
				_, j := m.Family().Joined(b.Name)
				return i - j
			})
			f(weights)
		}
	}
}

// fusedTogether: a fused module has one scheme, so all of its parts are quantized to one format or none.
func fusedTogether(m *checkpoint.Model) (problems []checkpoint.Problem) {
	eachFused(m, func(weights []*checkpoint.Weight) {
		for _, w := range weights[1:] {
			if w.Quantized() != weights[0].Quantized() || w.Format.Name != weights[0].Format.Name {
				problems = append(problems, checkpoint.Problem{Rule: "set-format", Tensor: w.Name,
					Text: fmt.Sprintf("it is %s and %s is %s, and the client fuses them into one module", w.FormatName(), weights[0].Name,
						weights[0].FormatName())})
			}
		}
	})
	return problems
}

// fusedGlobals: a fused module has one global scale.
func fusedGlobals(m *checkpoint.Model) (problems []checkpoint.Problem) {
	eachFused(m, func(weights []*checkpoint.Weight) {
		for _, w := range weights[1:] {
			if w.Format.Global && weights[0].Format.Global && w.Global != weights[0].Global {
				broken := "set-global"
				if family.SingleExpert(w.Name) {
					broken = "expert-gate-up"
				}
				problems = append(problems, checkpoint.Problem{Rule: broken, Tensor: w.Name,
					Text: fmt.Sprintf("its global scale is %g and that of %s is %g; the client fuses them into one module and keeps one: "+
						"quantize again", w.Global, weights[0].Name, weights[0].Global)})
			}
		}
	})
	return problems
}

// wholeShards: a block of 128×128 is inside one part of a fused module. The last part may end in a
// partial block (validate_fp8_block_shape in vLLM 0.32, and in SGLang).
func wholeShards(m *checkpoint.Model) (problems []checkpoint.Problem) {
	eachFused(m, func(weights []*checkpoint.Weight) {
		for _, w := range weights[:len(weights)-1] {
			if b := int64(w.Format.Block.Rows); w.Quantized() && b > 1 && w.Shape[0]%b != 0 {
				problems = append(problems, checkpoint.Problem{Rule: "partial-tile", Tensor: w.Name,
					Text: fmt.Sprintf("it has %d rows, not a multiple of %d, and the client fuses it with others", w.Shape[0], b)})
			}
		}
	})
	return problems
}

// evenBlocks: without a GPU, the client computes the size of a block as that of the weight over that of
// its scales, which is wrong if the last block is partial (Fp8Dequantize in integrations/finegrained_fp8.py of
// transformers 5.24).
func evenBlocks(convention string) rule {
	return func(m *checkpoint.Model) (problems []checkpoint.Problem) {
		for _, w := range m.Weights {
			if m.Convention.Name != convention || !w.Quantized() || w.Format.Block.Rows < 2 {
				continue
			}
			for _, side := range []struct {
				name    string
				n, size int64
			}{{"rows", w.Shape[len(w.Shape)-2], int64(w.Format.Block.Rows)}, {"columns", w.Shape[len(w.Shape)-1], int64(w.Format.Block.Cols)}} {
				if side.n > side.size && side.n%side.size != 0 {
					problems = append(problems, checkpoint.Problem{Rule: "partial-tile", Tensor: w.Name,
						Text: fmt.Sprintf("it has %d %s, not a multiple of %d, and without a GPU the client divides them evenly among the scales", side.n,
							side.name, side.size)})
				}
			}
		}
		return problems
	}
}

// groupedInputs: the client quantizes the inputs of blocks of 128×128 in groups of 128, and fails if there is a partial
// one (forward of compressed-tensors 0.20). It decodes the weights.
func groupedInputs(m *checkpoint.Model) []checkpoint.Problem {
	if m.Convention.Name != "compressed-tensors" || m.ActivationsIn(quant.FP8Block) == checkpoint.WeightOnly {
		return nil
	}
	return columnsOf(quant.FP8Block, int64(quant.FP8Block.Block.Cols))(m)
}

// excludedBySubstring: the client matches entries of the ignore list as substrings of module
// names.
func excludedBySubstring(conventions ...string) rule {
	return func(m *checkpoint.Model) (problems []checkpoint.Problem) {
		if !slices.Contains(conventions, m.Convention.Name) {
			return nil
		}
		var modules []string
		for _, w := range m.Weights {
			if w.Quantized() {
				modules = append(modules, strings.TrimSuffix(w.Name, ".weight"))
			}
		}
		joined := "\n" + strings.Join(modules, "\n") + "\n"
		index := sync.OnceValue(func() *suffixarray.Index { return suffixarray.New([]byte(joined)) }) // a list may name 100,000 experts
		for _, entry := range m.Ignore {
			if entry == "" || strings.ContainsAny(entry, "*?[:\n") {
				continue
			}
			found := index().Lookup([]byte(entry), 1)
			if len(found) == 0 {
				continue
			}
			module, _, _ := strings.Cut(joined[strings.LastIndexByte(joined[:found[0]], '\n')+1:], "\n")
			broken := "ignore-substring"
			if module == entry {
				broken = "ignored-quantized"
			} else if strings.HasPrefix(module, entry+".") {
				broken = "ignore-parent"
			}
			problems = append(problems, checkpoint.Problem{Rule: broken, Tensor: module,
				Text: fmt.Sprintf("the client loads it as unquantized, because %q on the ignore list is a substring of its name", entry)})
		}
		return problems
	}
}

// exactExcludes: the client supports exact names and "re:" patterns, but no wildcards, which Quark matches with fnmatch.
func exactExcludes(convention string) rule {
	return func(m *checkpoint.Model) (problems []checkpoint.Problem) {
		for _, entry := range m.Ignore {
			if m.Convention.Name == convention && strings.ContainsAny(entry, "*?[") && !strings.HasPrefix(entry, "re:") {
				problems = append(problems, checkpoint.Problem{Rule: "ignore-wildcard",
					Text: fmt.Sprintf("%q is on the exclude list, and the client does not support wildcards: name the modules", entry)})
			}
		}
		return problems
	}
}

// mixedWithNVFP4: the client takes a mixture without NVFP4 for one of INT4 and FP8 (_parse_quant_hf_config in
// configs/model_config.py of SGLang 0.5.23).
func mixedWithNVFP4(m *checkpoint.Model) []checkpoint.Problem {
	formats := m.Formats()
	if m.Convention.Name != "modelopt" || len(formats) < 2 || slices.ContainsFunc(formats, func(f quant.Format) bool { return f.Global }) {
		return nil
	}
	return []checkpoint.Problem{{Rule: "mixed-sglang", Text: fmt.Sprintf("it is a mixture of %s and %s, and the client reads one without "+
		"nvfp4 as W4AFP8: choose nvfp4 for some weights, or one format", formats[0], formats[1])}}
}

// needsFile: the client reads the configuration from another file than config.json.
func needsFile(convention string) rule {
	return func(m *checkpoint.Model) []checkpoint.Problem {
		if m.Convention.Name != convention {
			return nil
		}
		if err := m.CheckSidecar(); err != nil {
			return []checkpoint.Problem{{Rule: "sidecar-missing",
				Text: fmt.Sprintf("%v, from which the client reads how weights are quantized", err)}}
		}
		return nil
	}
}

// exactScheme: the client compares the name of the scheme case-sensitively.
func exactScheme(convention string) rule {
	return func(m *checkpoint.Model) []checkpoint.Problem {
		for _, f := range m.Formats() {
			for _, name := range m.Convention.Schemes(f) {
				if m.Convention.Name == convention && strings.EqualFold(name, m.Scheme) && name != m.Scheme {
					return []checkpoint.Problem{{Rule: "algo-case", Text: fmt.Sprintf("quant_algo is %q, and the client recognizes %q only: "+
						"convert it, which writes that", m.Scheme, name)}}
				}
			}
		}
		return nil
	}
}

// columnsOf: the client stores the format in blocks of n columns.
func columnsOf(f quant.Format, n int64) rule {
	return func(m *checkpoint.Model) (problems []checkpoint.Problem) {
		for _, w := range m.Weights {
			if cols := w.Shape; w.Quantized() && w.Format.Name == f.Name && cols[len(cols)-1]%n != 0 {
				problems = append(problems, checkpoint.Problem{Rule: "partial-columns", Tensor: w.Name,
					Text: fmt.Sprintf("it has %d columns, and the client needs a multiple of %d", cols[len(cols)-1], n)})
			}
		}
		return problems
	}
}

// noGlobal: the client does not read global scales.
func noGlobal(convention, does string) rule {
	return func(m *checkpoint.Model) []checkpoint.Problem {
		for _, w := range m.Weights {
			if t, ok := w.Part(checkpoint.Global); ok && w.Quantized() && m.Convention.Name == convention {
				return []checkpoint.Problem{{Rule: "mlx-global", Tensor: t.Name,
					Text: fmt.Sprintf("it is a global scale, and %s: quantize again", does)}}
			}
		}
		return nil
	}
}
