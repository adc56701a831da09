package identify

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// distributions are those of the values of three weights: normal, heavy tails, and normal with a scale for each block.
var distributions = map[string]func(r *rand.Rand) func(i int) float64{
	"model.gauss.weight": func(r *rand.Rand) func(int) float64 { return func(int) float64 { return 0.02 * r.NormFloat64() } },
	"model.laplace.weight": func(r *rand.Rand) func(int) float64 {
		return func(int) float64 { return 0.02 * (r.ExpFloat64() - r.ExpFloat64()) }
	},
	"model.ranged.weight": func(r *rand.Rand) func(int) float64 {
		scale := 0.0
		return func(i int) float64 {
			if i%32 == 0 {
				scale = math.Exp2(8*r.Float64() - 8)
			}
			return scale * r.NormFloat64()
		}
	},
}

// written returns a BF16 checkpoint of weights of rows × cols elements.
func written(t *testing.T, seed uint64, rows, cols int) string {
	t.Helper()
	var specs []safetensors.Spec
	names := []string{}
	for name := range distributions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		specs = append(specs, safetensors.Spec{Name: name, Dtype: safetensors.BF16, Shape: []int64{int64(rows), int64(cols)}})
	}
	path := filepath.Join(t.TempDir(), "source.safetensors")
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		value := distributions[name](rand.New(rand.NewPCG(seed, uint64(i))))
		values := make([]float32, rows*cols)
		for j := range values {
			values[j] = float32(value(j))
		}
		raw := make([]byte, 2*len(values))
		if err := tensor.ToBytes(raw, values, format.BF16); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteTensorAt(name, raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// opened reads a checkpoint.
func opened(t *testing.T, path string) *checkpoint.Model {
	t.Helper()
	source, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	m := checkpoint.Read(source)
	if len(m.Problems) > 0 {
		t.Fatal(m.Problems)
	}
	return m
}

// TestIdentify: of every weight that a profile quantized, the writer is among those that nothing contradicts.
func TestIdentify(t *testing.T) {
	for _, rows := range []int{16, 64} { // 64 and 256 blocks of 32, more of 16
		identified(t, rows)
	}
}

// identified identifies weights of rows × 128 elements of all profiles and formats.
func identified(t *testing.T, rows int) {
	t.Helper()
	path := written(t, 1, rows, 128)
	source := opened(t, path)
	named, all := 0, 0
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		for _, p := range profiles(f) {
			q, err := p.Quantizer(f)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := convert.PlanQuantize(t.Context(), source.Source, convert.QuantizeOptions{Quantizer: q, Convention: "plain"})
			if err != nil {
				t.Fatal(err)
			}
			dst := filepath.Join(t.TempDir(), "quantized.safetensors")
			if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			m := opened(t, dst)
			weights, err := Identify(t.Context(), m, source)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range weights {
				all++
				i := slices.IndexFunc(w.Candidates, func(c Candidate) bool { return c.Name == p.Name })
				if i >= 0 && w.Candidates[i].exact() && w.Known {
					named++
				} else {
					t.Logf("%s by %s: %s: %s %+v", f, p, w.Name, w.Verdict, w.Candidates)
				}
			}
		}
	}
	t.Logf("%d rows: with the source: %d of %d named", rows, named, all)
	if 100*named < 99*all {
		t.Errorf("with the source: %d of %d named", named, all)
	}
}

// TestUnknown: codes of another source, and codes that were changed, are not named.
func TestUnknown(t *testing.T) {
	path, other := written(t, 1, 16, 256), written(t, 2, 16, 256)
	q := quant.Quantizer{Format: quant.MXFP4, Search: quant.LeastSquares}
	plan, err := convert.PlanQuantize(t.Context(), opened(t, path).Source, convert.QuantizeOptions{Quantizer: q, Convention: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "quantized.safetensors")
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{path, other} {
		weights, err := Identify(t.Context(), opened(t, dst), opened(t, source))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range weights {
			if w.Known || !strings.HasPrefix(w.Verdict, unknown) {
				t.Errorf("%s: %s", w.Name, w.Verdict)
			}
		}
	}
}

// TestTake: a census knows whether the file has the inverse of the global scale.
func TestTake(t *testing.T) {
	source := opened(t, written(t, 1, 16, 128))
	for _, tc := range []struct {
		f          quant.Format
		convention string
		divided    bool
	}{{quant.FP8Row, "plain", false}, {quant.NVFP4, "plain", false}, {quant.NVFP4, "compressed-tensors", true}} {
		plan, err := convert.PlanQuantize(t.Context(), source.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.f},
			Convention: tc.convention})
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "quantized")
		if tc.convention == "plain" {
			dst += ".safetensors"
		}
		if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		w, _ := opened(t, dst).Lookup("model.gauss.weight")
		c, read, err := take(w, sampleBlocks)
		if err != nil || c.typed || c.divided != tc.divided || read != int64(len(c.blocks)) {
			t.Errorf("%s in %s: typed %v, divided %v, %d of %d blocks, error %v", tc.f, tc.convention, c.typed, c.divided, len(c.blocks), read, err)
		}
	}
}

// TestUnread: a weight that cannot be read is one row, however many of its tensors are at fault.
func TestUnread(t *testing.T) {
	m := &checkpoint.Model{Source: new(hf.Checkpoint), Problems: []checkpoint.Problem{{Tensor: "a.weight_packed", Text: "no scales"},
		{Tensor: "a.weight_packed", Text: "no shape"}, {Tensor: "a.weight_scale", Text: "of no weight"}, {Tensor: "a.weight", Text: "missing"},
		{Tensor: "b", Misread: true}}}
	weights, err := Identify(t.Context(), m, nil)
	if err != nil || len(weights) != 1 || weights[0].Name != "a" || weights[0].Known || !strings.HasPrefix(weights[0].Verdict, unknown) {
		t.Errorf("%+v, error %v", weights, err)
	}
}

// TestBlockOf reads the last block of weights, with the codes that profiles make of the original.
func TestBlockOf(t *testing.T) {
	const rows, cols, name = 128, 256, "model.gauss.weight"
	path := written(t, 1, rows, cols)
	source := opened(t, path)
	original, _ := source.Lookup(name)
	x, err := original.Read(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []quant.Format{quant.MXFP6E2M3, quant.NVFP4, quant.FP8Block, quant.FP8Row, quant.FP8Tensor} {
		options := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: "plain"}
		plan, err := convert.PlanQuantize(t.Context(), source.Source, options)
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "quantized.safetensors")
		if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		m := opened(t, dst)
		w, _ := m.Lookup(name)
		decoded, err := w.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		high, wide := f.ScaleShape(rows, cols)
		number := high*wide - 1
		b, err := BlockOf(t.Context(), m, source, name, number)
		if err != nil {
			t.Fatal(err)
		}
		if b.Row+b.Rows != rows || b.Col+b.Cols != cols || len(b.Values) != b.Rows*b.Cols || b.Writers[0].Name != "file" ||
			b.Writers[1].Name != "te" || len(b.Writers) != len(profiles(f))+1 {
			t.Fatalf("%s: %+v", f, b)
		}
		for i, v := range b.Values {
			row, col := b.Row+i/b.Cols, b.Col+i%b.Cols
			if float32(v) != x.Row(row)[col] || float32(b.Writers[0].Decoded[i]) != decoded.Row(row)[col] {
				t.Fatalf("%s: element %d", f, i)
			}
		}
		if !slices.Equal(b.Writers[0].Codes, b.Writers[1].Codes) || b.Writers[0].Scale != b.Writers[1].Scale ||
			b.Writers[0].Global != b.Writers[1].Global || (b.Writers[0].Global != 0) != f.Global {
			t.Errorf("%s: the file differs from te: %+v", f, b.Writers[:2])
		}
		var out strings.Builder
		if err := b.Print(&out, false); err != nil || strings.Count(out.String(), "\n") < b.Rows*b.Cols+4 {
			t.Errorf("%s: error %v: %s", f, err, out.String())
		}
		for _, wrong := range []int{-1, number + 1} {
			if _, err := BlockOf(t.Context(), m, nil, name, wrong); err == nil {
				t.Errorf("%s: block %d is no error", f, wrong)
			}
		}
	}
}
