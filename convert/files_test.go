package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// listing returns "name DTYPE [shape]" of every tensor of a file, sorted, and the
// metadata without the record of the run.
func listing(t testing.TB, path string) (tensors []string, metadata map[string]string) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		tensors = append(tensors, fmt.Sprintf("%s %s %v", info.Name, info.Dtype, info.Shape))
	}
	slices.Sort(tensors)
	metadata = maps.Clone(f.Metadata())
	delete(metadata, checksum.RecordKey)
	return tensors, metadata
}

// listingOf returns the result of listing for made tensors.
func listingOf(tensors ...made) (all []string) {
	for _, m := range tensors {
		all = append(all, fmt.Sprintf("%s %s %v", m.name, m.dtype, m.shape))
	}
	return all
}

// TestCompressedTensorsFiles checks all files of a directory: tensors, metadata, index, ignore
// list, configuration, and auxiliary files.
func TestCompressedTensorsFiles(t *testing.T) {
	source := madeModel()
	dir := writeModel(t, source, madeConfig)
	writeText(t, filepath.Join(dir, "tokenizer.json"), "{}")
	src := openModel(t, dir)
	linear := []string{
		"lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "model.none", // these stay in every format
		"model.layers.0.mlp.experts.0.down_proj", "model.odd", "model.odder", // of 48, 100 and 257 columns
		"model.layers.0.mlp.experts.0.gate_proj", "model.layers.0.mlp.experts.0.up_proj", // of 64
		"model.layers.0.mlp.experts.1.gate_proj", "model.layers.0.mlp.experts.1.up_proj",
		"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj",
		"model.layers.0.self_attn.o_proj",
		"model.big", "model.blocks", "model.square", "model.tiny", "model.zero", // of multiples of 128
	}
	for name, ignored := range map[string][]string{
		"mxfp8":        linear[:7],
		"mxfp4":        linear[:7],
		"nvfp4":        slices.Concat(linear[:4], linear[5:7]),
		"fp8-tensor":   linear[:4],
		"fp8-row":      linear[:4],
		"fp8-block128": linear[:15],
	} {
		t.Run("format="+name, func(t *testing.T) {
			f, err := quant.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			dst := filepath.Join(t.TempDir(), "out")
			quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}}, RunOptions{})
			var config struct {
				Quantization struct {
					Ignore []string `json:"ignore"`
				} `json:"quantization_config"`
			}
			unmarshal(t, filepath.Join(dst, hf.ConfigName), &config)
			c, err := checkpoint.LookupConvention("compressed-tensors")
			if err != nil {
				t.Fatal(err)
			}
			listed := c.Ignored(config.Quantization.Ignore)
			for _, module := range linear {
				if listed(module) != slices.Contains(ignored, module) {
					t.Errorf("that the ignore list %q matches %s is %v", config.Quantization.Ignore, module, listed(module))
				}
			}
			index := safetensors.Index{WeightMap: map[string]string{}}
			for shard, tensors := range source {
				var expected []string
				for _, m := range tensors {
					module, _ := strings.CutSuffix(m.name, ".weight")
					if slices.Contains(linear, module) && !slices.Contains(ignored, module) {
						for _, s := range c.Stored(f, m.name, m.shape) {
							expected = append(expected, listingOf(made{name: s.Name, dtype: s.Dtype, shape: s.Shape})...)
						}
					} else {
						expected = append(expected, listingOf(m)...)
					}
				}
				slices.Sort(expected)
				got, metadata := listing(t, filepath.Join(dst, shard))
				if !slices.Equal(got, expected) {
					t.Errorf("%s has\n%s\nwant\n%s", shard, strings.Join(got, "\n"), strings.Join(expected, "\n"))
				}
				if !maps.Equal(metadata, map[string]string{"format": "pt", "kept": "yes"}) {
					t.Errorf("%s has metadata %q", shard, metadata)
				}
				checkIndexed(t, filepath.Join(dst, shard), &index)
			}
			got, err := safetensors.ReadIndex(filepath.Join(dst, safetensors.IndexName))
			if err != nil {
				t.Fatal(err)
			}
			if got.TotalSize != index.TotalSize || !maps.Equal(got.WeightMap, index.WeightMap) {
				t.Errorf("the index is %v, want %v", got, index)
			}
			checkConfig(t, filepath.Join(dst, hf.ConfigName))
			if entries, err := os.ReadDir(dst); err != nil || len(entries) != 5 {
				t.Errorf("the directory has %v, %v, want two shards, the index, config.json and tokenizer.json", entries, err)
			}
		})
	}
}

// checkIndexed adds the tensors of a file to an index, unchanged.
func checkIndexed(t *testing.T, path string, index *safetensors.Index) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		index.WeightMap[info.Name] = filepath.Base(path)
		index.TotalSize += info.Bytes()
	}
}

// checkConfig checks that config.json has the members of madeConfig, with their order and
// spelling, and quantization_config at the end.
func checkConfig(t *testing.T, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, ok := bytes.Cut(got, []byte(",\n  \"quantization_config\": "))
	if want := strings.TrimSuffix(madeConfig, "\n}\n"); !ok || string(kept) != want || !json.Valid(got) {
		t.Errorf("config.json is\n%s\nwant quantization_config after\n%s", got, want)
	}
}

// global reads a global scale.
func global(t *testing.T, m *checkpoint.Model, name string) float32 {
	t.Helper()
	var value [4]byte
	if err := m.Source.ReadTensorAt(name, value[:], 0); err != nil {
		t.Fatal(err)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(value[:]))
}

// TestGlobalScales: siblings share the global scale, across shards and per expert. It is 448·6
// over their largest amax as a divisor in compressed-tensors, and the inverse as a factor in
// ModelOpt and plain. MLX stores none.
func TestGlobalScales(t *testing.T) {
	source := madeModel()
	src := openModel(t, writeModel(t, source, madeConfig))
	const layer = "model.layers.0."
	groups := [][]string{
		{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, {"self_attn.o_proj"},
		{"mlp.experts.0.gate_proj", "mlp.experts.0.up_proj"}, {"mlp.experts.0.down_proj"},
		{"mlp.experts.1.gate_proj", "mlp.experts.1.up_proj"},
	}
	for _, c := range linearConventions(quant.NVFP4) {
		t.Run("convention="+c.Name, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "out")
			quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: c.Name}, RunOptions{})
			got := openModel(t, dst)
			for _, group := range groups {
				var amax float32
				for _, name := range group {
					amax = max(amax, largest(t, src, layer+name+".weight"))
				}
				suffix, want := ".weight_scale_2", 1/(448*6/amax)
				switch c.Name {
				case "compressed-tensors":
					suffix, want = ".weight_global_scale", 1/want
				case "mlx":
					for _, name := range group {
						if w, ok := got.Lookup(layer + name + ".weight"); !ok || w.Global != 1 {
							t.Errorf("%s has the global scale %g", name, w.Global)
						}
						if _, ok := got.Source.Lookup(layer + name + ".global_scale"); ok {
							t.Errorf("%s has a tensor of a global scale", name)
						}
					}
					continue
				}
				for _, name := range group {
					if g := global(t, got, layer+name+suffix); g != want {
						t.Errorf("%s: the global scale is %g, want %g", name, g, want)
					}
				}
			}
		})
	}
}

// largest returns the amax of a weight.
func largest(t *testing.T, m *checkpoint.Model, name string) float32 {
	t.Helper()
	w, ok := m.Lookup(name)
	if !ok {
		t.Fatalf("no weight %s", name)
	}
	rows, _ := w.Matrix()
	x, err := w.Read(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	return quant.Amax(x, 1)
}

// TestSelection: which weights are left unquantized by default, and how patterns change the
// selection.
func TestSelection(t *testing.T) {
	shape := []int64{64, 64}
	var tensors []made
	for _, name := range []string{
		"model.embed_tokens", "transformer.wte", "transformer.wpe", "lm_head", "output", "classifier", "score",
		"l.0.mlp.gate", "l.0.router", "l.0.mlp.shared_expert_gate", "l.0.input_layernorm", "h.0.ln_1",
		"vision_tower.l.0.fc1", "model.visual.fc", "multi_modal_projector.linear", "mtp.fc", "model.mtp.0.q_proj", "eh_proj",
	} {
		tensors = append(tensors, made{name + ".weight", safetensors.BF16, 1, shape})
	}
	stay := len(tensors)
	for _, name := range []string{
		"l.0.q_proj", "l.0.conv.in_proj", "l.0.mlp.gate_proj", "l.0.mlp.up_gate", "l.0.attn.output.dense", "l.0.output", "scorer", "l.0.w1",
		"l.0.shared_expert.gate_proj", "l.0.x_gate_up_proj",
	} {
		tensors = append(tensors, made{name + ".weight", safetensors.BF16, 1, shape})
	}
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, madeConfig))
	chosen := func(convention string, o QuantizeOptions) (names []string) {
		o.Quantizer.Format, o.Convention = quant.MXFP8, convention
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range plan.decisions {
			if d.action == Quantize {
				names = append(names, d.Weight.Name)
			} else if d.reason.cause == noCause {
				t.Errorf("%s stays without a reason", d.Weight.Name)
			}
		}
		return names
	}
	names := func(tensors []made) (all []string) {
		for _, m := range tensors {
			all = append(all, m.name)
		}
		return slices.Sorted(slices.Values(all))
	}
	pattern := func(s string) []*regexp.Regexp { return []*regexp.Regexp{regexp.MustCompile(s)} }
	for _, tc := range []struct {
		name string
		s    QuantizeOptions
		want []string
	}{
		{"none", QuantizeOptions{}, names(tensors[stay:])},
		{"include", QuantizeOptions{Include: pattern(`^lm_head\.`)}, append(names(tensors[stay:]), "lm_head.weight")},
		{"exclude", QuantizeOptions{Exclude: pattern(`^l\.0|output`)}, []string{"scorer.weight"}},
		{"both", QuantizeOptions{Include: pattern("lm_head|^output"), Exclude: pattern("head|^l")}, []string{"scorer.weight", "output.weight"}},
		{"no linear modules", QuantizeOptions{Include: pattern("wte|wpe|embed|conv|norm|ln_"), Exclude: pattern("^l.*(_|w1|output)")},
			[]string{"scorer.weight"}},
	} {
		slices.Sort(tc.want)
		if got := slices.Sorted(slices.Values(chosen("", tc.s))); !slices.Equal(got, tc.want) {
			t.Errorf("%s: quantized are %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := chosen("plain", QuantizeOptions{Include: pattern("wte"), Exclude: pattern("^l.*(_|w1|output)")}); !slices.Equal(
		slices.Sorted(slices.Values(got)), []string{"scorer.weight", "transformer.wte.weight"}) {
		t.Errorf("plain: quantized are %q", got)
	}
	for _, tc := range []struct {
		s    QuantizeOptions
		want string
	}{
		{QuantizeOptions{Exclude: pattern("")},
			fmt.Sprintf("no weight would be quantized: excluded (%d); change the rules or patterns by which", len(tensors))},
		{QuantizeOptions{Exclude: pattern("q_prj")}, "the exclude pattern 'q_prj' matches no weight of " + src.Source.Path},
		{QuantizeOptions{Include: append(pattern("lm_head"), pattern("wet")...)}, "the include pattern 'wet' matches no weight of " +
			src.Source.Path},
	} {
		if _, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Include: tc.s.Include,
			Exclude: tc.s.Exclude}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v %v: error %v, want %q", tc.s.Include, tc.s.Exclude, err, tc.want)
		}
	}
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8},
		Include: pattern("wte")})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(plan.decisions, func(d decision) bool { return d.Weight.Name == "transformer.wte.weight" })
	if got, want := plan.decisions[i].reason,
		(Reason{causeConvention, "embedding: compressed-tensors supports linear modules only"}); got != want {
		t.Errorf("an included embedding stays because of %q", got)
	}
	if got := fmt.Sprint(plan.Notes); !strings.Contains(got, "1 included weights are not quantized, the first transformer.wte.weight: "+
		"embedding: ") {
		t.Errorf("notes %s", got)
	}
}

// TestPlanErrors: unusable sources, and the remedies that the errors name.
func TestPlanErrors(t *testing.T) {
	weight := made{"l.0.weight", safetensors.BF16, 1, []int64{32, 32}}
	bare := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {weight}}, ""))
	empty := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {}}, madeConfig))
	norm := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"norm.weight", safetensors.BF16, 1, []int64{32}}}},
		madeConfig))
	mxfp8 := quant.Quantizer{Format: quant.MXFP8}
	for _, tc := range []struct {
		name string
		src  *checkpoint.Model
		c    string
		want string
	}{
		{"no config.json", bare, "compressed-tensors", "config.json is missing, in which convention compressed-tensors describes the " +
			"quantization: fetch it, or choose convention plain"},
		{"no tensors", empty, "", "no tensors: name a checkpoint with weights"},
		{"no weights", norm, "", "no weight would be quantized: has 1 dimension (1); include"},
	} {
		if _, err := PlanQuantize(t.Context(), tc.src.Source, QuantizeOptions{Quantizer: mxfp8, Convention: tc.c}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	plan, err := PlanQuantize(t.Context(), bare.Source, QuantizeOptions{Quantizer: mxfp8})
	if err != nil || plan.convention != checkpoint.Plain() {
		t.Errorf("without config.json: %+v, %v", plan, err)
	}
	if _, err := PlanDequantize(t.Context(), bare.Source, safetensors.F32); err == nil || !strings.Contains(err.Error(),
		"not quantized: name a checkpoint of convention compressed-tensors") {
		t.Errorf("dequantize: %v", err)
	}
}

// TestWithoutIndex: shards without an index are a problem of the source, not of the result.
func TestWithoutIndex(t *testing.T) {
	dir := writeModel(t, madeModel(), madeConfig)
	if err := os.Remove(filepath.Join(dir, safetensors.IndexName)); err != nil {
		t.Fatal(err)
	}
	src := openModel(t, dir)
	if len(src.Problems) != 1 || !strings.HasPrefix(src.Problems[0].Text, "there are 2 files of weights and no model.safetensors.index.json") {
		t.Errorf("problems of the source: %v", src.Problems)
	}
	dst := filepath.Join(t.TempDir(), "out")
	quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}}, RunOptions{})
	compare(t, src, openModel(t, dst))
}

// TestSingleFile converts one file to one file, in plain and in compressed-tensors, where the
// metadata of the file replaces config.json. Both verify and decode.
func TestSingleFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.safetensors")
	writeFile(t, path, map[string]string{"kept": "yes"}, madeModel()[shard2]...)
	src := openModel(t, path)
	for _, tc := range []struct{ convention, key string }{{"", "microscale.model.odd.weight"}, {"plain", "microscale.model.odd.weight"},
		{"compressed-tensors", "quantization_config"}} {
		for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.FP8Row} {
			t.Run("convention="+tc.convention+"/format="+f.Name, func(t *testing.T) {
				o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: tc.convention}
				dir := t.TempDir()
				dst, back := filepath.Join(dir, "small.safetensors"), filepath.Join(dir, "back.safetensors")
				plan, _ := quantize(t, src, dst, o, RunOptions{})
				_, metadata := listing(t, dst)
				if _, ok := metadata[tc.key]; !ok || metadata["kept"] != "yes" || metadata["format"] != "pt" {
					t.Errorf("metadata is %q", metadata)
				}
				got := openModel(t, dst)
				report := compare(t, src, got)
				if got.Convention != plan.convention || got.Quantized() != plan.Count(Quantize) {
					t.Errorf("%d weights are quantized in %v, planned were %d in %v", got.Quantized(), got.Convention, plan.Count(Quantize),
						plan.convention)
				}
				if _, err := PlanQuantize(t.Context(), got.Source, o); err == nil || !strings.Contains(err.Error(), "already quantized") {
					t.Errorf("it can be quantized again: %v", err)
				}
				decode, err := PlanDequantize(t.Context(), got.Source, safetensors.F32)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := decode.Run(context.Background(), back, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				compare(t, got, openModel(t, back))
				decoded := errorsOf(t, src, openModel(t, back))
				for i := range decoded {
					decoded[i].Result.Saturated, decoded[i].Format = report.Tensors[i].Result.Saturated, report.Tensors[i].Format
				}
				sameReport(t, decoded, report.Tensors)
				if _, metadata := listing(t, back); !maps.Equal(metadata, map[string]string{"format": "pt", "kept": "yes"}) {
					t.Errorf("the decoded file has metadata %q", metadata)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
					t.Errorf("beside the two files there is more: %v, %v", entries, err)
				}
			})
		}
	}
}

// TestProfiles quantizes weights near the limits of float32 by every profile in every format
// that it defines. All results are sound checkpoints.
func TestProfiles(t *testing.T) {
	slow.Race(t, slow.Repeats)
	path := filepath.Join(t.TempDir(), "ends.safetensors")
	var tensors []made
	for i, std := range []float32{0, 1e-45, 1e-42, 1e-38, 1e-20, 1, 1e20, 1e37} {
		tensors = append(tensors, made{fmt.Sprintf("l.%d.weight", i), safetensors.F32, std, []int64{16, 128}})
	}
	tensors = append(tensors, made{"l.square.weight", safetensors.F32, 1e-30, []int64{128, 128}}) // which every convention holds
	writeFile(t, path, nil, tensors...)
	src := openModel(t, path)
	for _, p := range profile.All() {
		for _, f := range quant.Formats() {
			q, err := p.Quantizer(f)
			if err != nil || !f.Scaled() {
				continue
			}
			for _, c := range linearConventions(f) {
				t.Run("profile="+p.Name+"/format="+f.Name+"/convention="+c.Name, func(t *testing.T) {
					dst := filepath.Join(t.TempDir(), "out.safetensors")
					o := QuantizeOptions{Quantizer: q, Convention: c.Name, Calibration: needed(c, f)}
					if _, _, err := c.Quantizer(q); err != nil {
						if _, again := PlanQuantize(t.Context(), src.Source, o); c.Name != "mlx" || q.Arithmetic.FixesGlobal() || again == nil ||
							again.Error() != err.Error() {
							t.Errorf("rejected with %v, planned with %v", err, again)
						}
						return
					}
					quantize(t, src, dst, o, RunOptions{})
					compare(t, src, openModel(t, dst))
				})
			}
		}
	}
}

// TestThreads: the number of threads changes no byte, in any format.
func TestThreads(t *testing.T) {
	src := openModel(t, writeModel(t, madeModel(), madeConfig))
	for _, f := range []quant.Format{quant.NVFP4, quant.FP8Tensor, quant.FP8Block, quant.MXFP6E3M2} {
		t.Run("format="+f.Name, func(t *testing.T) {
			var want map[string][]byte
			for _, threads := range []int{1, 2, 5} {
				dst := filepath.Join(t.TempDir(), "out")
				quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}}, RunOptions{Threads: threads})
				got := contents(t, dst)
				if want == nil {
					want = got
				}
				if !maps.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("%d threads write other bytes than 1", threads)
				}
			}
		})
	}
}

// contents returns the files of a directory by name.
func contents(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// linearConventions are the conventions that store linear modules in f as safetensors. gpt-oss
// stores experts alone (TestExperts), and gguf is another container (TestGGUF).
func linearConventions(f quant.Format) []*checkpoint.Convention {
	return slices.DeleteFunc(checkpoint.Conventions(), func(c *checkpoint.Convention) bool {
		return !c.Holds(f) || c.Name == "gpt-oss" || c.Is(checkpoint.GGUF())
	})
}

// needed returns the calibration that a convention requires to store f.
func needed(c *checkpoint.Convention, f quant.Format) *Calibration {
	if _, a := c.Scheme(f); a == checkpoint.Static {
		return &Calibration{ConstantInputs: true}
	}
	return nil
}
