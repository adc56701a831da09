package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// square is a checkpoint that every convention of linear modules supports.
func square() map[string][]made {
	const bf16 = safetensors.BF16
	tensors := []made{{"model.norm.weight", bf16, 1, []int64{128}}, {"lm_head.weight", bf16, 1, []int64{128, 128}}}
	for i := range 4 {
		for j, name := range []string{"self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"} {
			tensors = append(tensors, made{fmt.Sprintf("model.layers.%d.%s.weight", i, name), bf16, 0.01 * float32(1+i+7*j), []int64{128, 256}})
		}
	}
	return map[string][]made{"model.safetensors": tensors}
}

// amaxes is a calibration of the weights of square, with values whose reciprocals round.
func amaxes() *Calibration {
	c := &Calibration{Input: map[string]float64{}, Key: map[string]float64{}, Value: map[string]float64{}}
	for i := range 4 {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for j, name := range []string{"self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"} {
			c.Input[layer+name] = 3.7 + 1.1*float64(3*i+j)
		}
		c.Key[layer+"self_attn.k_proj"], c.Value[layer+"self_attn.v_proj"] = 1.3*float64(i+1), 2.9*float64(i+1)
	}
	return c
}

// A home is a convention with one of its schemes.
type home struct {
	*checkpoint.Convention
	scheme string
}

func (h home) String() string { return h.Name + " " + h.scheme }

// homes returns every home of a format.
func homes(f quant.Format) (all []home) {
	for _, c := range linearConventions(f) {
		for _, scheme := range c.Schemes(f) {
			all = append(all, home{c, scheme})
		}
	}
	return all
}

// static reports whether scales of activations are stored.
func (h home) static(t *testing.T, f quant.Format) bool {
	t.Helper()
	only, err := h.With(f, h.scheme)
	if err != nil {
		t.Fatal(err)
	}
	_, a := only.Scheme(f)
	return a == checkpoint.Static
}

// relabel stores a checkpoint in another convention.
func relabel(t *testing.T, src *checkpoint.Model, dst string, o relabeling) {
	t.Helper()
	plan, err := planRelabel(src, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestRelabel converts every format from every scheme that stores it to every other and back.
// The codes and scales are equal, the checkpoint is sound, and the final files equal the
// original ones, byte by byte.
func TestRelabel(t *testing.T) {
	src := openModel(t, writeModel(t, square(), madeConfig))
	var lock sync.Mutex
	kept := map[string]int{}
	t.Run("pairs", func(t *testing.T) { // ends when all pairs have
		for _, f := range quant.Formats() {
			if !f.Scaled() {
				continue
			}
			for _, from := range homes(f) {
				o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: from.Name, Scheme: from.scheme}
				if from.static(t, f) {
					o.Calibration = &Calibration{Input: amaxes().Input}
				}
				first := filepath.Join(t.TempDir(), "first")
				quantize(t, src, first, o, RunOptions{})
				a := openModel(t, first)
				for _, to := range homes(f) {
					if from == to || !from.static(t, f) && to.static(t, f) {
						continue
					}
					t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
						t.Parallel()
						n := thereAndBack(t, src, a, from, to)
						lock.Lock()
						kept[to.Name] += n
						lock.Unlock()
					})
				}
			}
		}
	})
	for _, name := range []string{"compressed-tensors", "modelopt"} {
		if kept[name] == 0 {
			t.Errorf("no number was kept in the metadata of %s: this test does not show that any comes back", name)
		}
	}
}

// thereAndBack stores a checkpoint in another home and again in its own. It returns the weights
// whose metadata kept numbers on the way.
func thereAndBack(t *testing.T, src, a *checkpoint.Model, from, to home) (kept int) {
	t.Helper()
	second, third := filepath.Join(t.TempDir(), "second"), filepath.Join(t.TempDir(), "third")
	relabel(t, a, second, relabeling{Convention: to.Name, Scheme: to.scheme})
	b := openModel(t, second)
	if !b.Convention.Is(to.Convention) || b.Scheme != to.scheme && b.Scheme != "" {
		t.Fatalf("it is in %s %s: %v", b.Convention, b.Scheme, b.Problems)
	}
	sameCodes(t, a, b)
	compare(t, src, b)
	for _, w := range b.Weights {
		if w.Kept() != (checkpoint.Kept{}) {
			kept++
		}
	}
	relabel(t, b, third, relabeling{Convention: from.Name, Scheme: from.scheme})
	sameFiles(t, third, a.Source.Path)
	return kept
}

// sameCodes compares the codes, scales and input scales of two checkpoints.
func sameCodes(t *testing.T, a, b *checkpoint.Model) {
	t.Helper()
	if a.Quantized() == 0 || a.Quantized() != b.Quantized() || len(a.Weights) != len(b.Weights) {
		t.Fatalf("%d of %d weights are quantized, and %d of %d", a.Quantized(), len(a.Weights), b.Quantized(), len(b.Weights))
	}
	for _, w := range a.Weights {
		v, ok := b.Lookup(w.Name)
		if !ok {
			t.Fatalf("%s is missing", w.Name)
		}
		if !w.Quantized() {
			continue
		}
		rows, cols := w.Matrix()
		tile := checkpoint.Tile{To: rows, ToCol: cols}
		q, err := w.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		r, err := v.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(q.Codes, r.Codes) || !bytes.Equal(q.ScaleBytes(), r.ScaleBytes()) {
			t.Errorf("%s has other codes or scales", w.Name)
		}
		if math.Abs(float64(q.Global-r.Global)) > 2e-7*float64(q.Global) { // of two roundings
			t.Errorf("%s: the global scale is %g, and was %g", w.Name, r.Global, q.Global)
		}
		x, hasX := w.InputScale()
		y, hasY := v.InputScale()
		if hasX != hasY || x != y && math.Abs(float64(x-y)) > 2e-7*float64(x) {
			t.Errorf("%s: the scale of its activations is %g, %v, and was %g, %v", w.Name, y, hasY, x, hasX)
		}
	}
}

// unrecorded returns the files of a directory, without the records in the metadata of weight
// files.
func unrecorded(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := contents(t, dir)
	for name, data := range files {
		if !strings.HasSuffix(name, safetensors.Suffix) {
			continue
		}
		end := 8 + binary.LittleEndian.Uint64(data)
		var header map[string]map[string]any
		if err := json.Unmarshal(data[8:end], &header); err != nil {
			t.Fatal(err)
		}
		delete(header["__metadata__"], checksum.RecordKey)
		text, err := json.Marshal(header)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = append(text, data[end:]...)
	}
	return files
}

// sameFiles compares the files of two directories, apart from the records of the runs
// that wrote them.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	g, w := unrecorded(t, got), unrecorded(t, want)
	for name := range w {
		if !bytes.Equal(g[name], w[name]) {
			n := min(2000, len(g[name]), len(w[name]))
			t.Errorf("%s is not what it was: %.300q, and was %.300q", name, g[name][:n], w[name][:n])
		}
	}
	if len(g) != len(w) {
		t.Errorf("there are %d files, and were %d", len(g), len(w))
	}
}

// TestRelabelCache: scales of the KV cache take the names of the convention.
func TestRelabelCache(t *testing.T) {
	src := openModel(t, writeModel(t, square(), madeConfig))
	for _, from := range []string{"compressed-tensors", "modelopt"} {
		c, err := checkpoint.LookupConvention(from)
		if err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(t.TempDir(), "first")
		quantize(t, src, first, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: c.Name, Calibration: amaxes()},
			RunOptions{})
		a := openModel(t, first)
		name := map[string]string{"compressed-tensors": "model.layers.2.self_attn.k_scale", "modelopt": "model.layers.2.self_attn.k_proj.k_scale"}
		const want = float32(1.3*3) / 448
		if got := global(t, a, name[from]); got != want {
			t.Errorf("%s: the scale of keys is %g, want %g", from, got, want)
		}
		for to := range name {
			d, err := checkpoint.LookupConvention(to)
			if err != nil {
				t.Fatal(err)
			}
			second := filepath.Join(t.TempDir(), "second")
			relabel(t, a, second, relabeling{Convention: d.Name})
			b := openModel(t, second)
			if got := global(t, b, name[to]); got != want || len(b.Problems) > 0 {
				t.Errorf("%s to %s: the scale of keys is %g, want %g; %v", from, to, got, want, b.Problems)
			}
			if text := string(b.Source.Config); !strings.Contains(text, `"kv_cache_scheme": {`) {
				t.Errorf("%s to %s: the configuration does not say that the KV cache is quantized: %s", from, to, text)
			}
		}
		if _, err := planRelabel(a, relabeling{Convention: "mlx"}); err == nil || !strings.Contains(err.Error(),
			"convention mlx stores no scales of a KV cache: nothing was written") {
			t.Errorf("to mlx: error %v", err)
		}
		back := filepath.Join(t.TempDir(), "back")
		plan, err := PlanDequantize(t.Context(), a.Source, safetensors.BF16)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		compare(t, a, openModel(t, back))
	}
}

// TestRelabelRejects: an unsupported weight is an error before anything is written.
func TestRelabelRejects(t *testing.T) {
	odd := map[string][]made{"model.safetensors": {
		{"l.0.up_proj.weight", safetensors.BF16, 1, []int64{130, 128}}, {"l.1.up_proj.weight", safetensors.BF16, 1, []int64{128, 100}},
		{"model.embed_tokens.weight", safetensors.BF16, 1, []int64{128, 128}}}}
	src := openModel(t, writeModel(t, odd, madeConfig))
	for _, tc := range []struct {
		format       quant.Format
		from, to     string
		scheme, want string
	}{
		{format: quant.FP8Block, from: "deepseek", to: "modelopt", want: "l.0.up_proj.weight: convention modelopt does not support it: 130 " +
			"rows are not a multiple of 128; nothing was written"},
		{format: quant.MXFP8, from: "plain", to: "mxfp8", want: "l.1.up_proj.weight: convention mxfp8 does not support it: 100 columns are " +
			"not a multiple of 32; nothing was written"},
		{format: quant.MXFP8, from: "mxfp8", to: "quark", want: "convention quark does not support mxfp8: use one of mxfp4, mxfp6-e3m2, " +
			"mxfp6-e2m3"},
		{format: quant.MXFP4, from: "quark", to: "gpt-oss", want: "does not support it: not fused experts"},
		{format: quant.FP8Tensor, from: "compressed-tensors", to: "modelopt", want: "scheme FP8 of convention modelopt stores scales of " +
			"activations: give a calibration"},
		{format: quant.MXFP4, from: "compressed-tensors", to: "mlx", scheme: "MXFP4", want: ""},
		{format: quant.MXFP4, from: "compressed-tensors", to: "mlx", scheme: "nvfp4",
			want: `convention mlx has no scheme "nvfp4" for mxfp4: use one of mxfp4`},
	} {
		dir := filepath.Join(t.TempDir(), "quantized")
		quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format}, Convention: tc.from}, RunOptions{})
		_, err := planRelabel(openModel(t, dir), relabeling{Convention: tc.to, Scheme: tc.scheme})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s from %s to %s: error %v, want %q", tc.format, tc.from, tc.to, err, tc.want)
		}
	}
	embedding := filepath.Join(t.TempDir(), "embedding")
	quantize(t, src, embedding, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: "plain",
		Include: patterns("embed"), Exclude: patterns("up_proj")}, RunOptions{})
	if _, err := planRelabel(openModel(t, embedding), relabeling{Convention: "mlx"}); err == nil || !strings.Contains(err.Error(),
		"model.embed_tokens.weight: convention mlx does not support it: embedding; nothing was written") {
		t.Errorf("an embedding: error %v", err)
	}
	if _, err := planRelabel(src, relabeling{Convention: "mlx"}); err == nil || !strings.Contains(err.Error(),
		"not quantized: name a checkpoint") {
		t.Errorf("of what is not quantized: error %v", err)
	}
}

// TestMLXGlobalScale: quantizing to MLX stores no global scale, and relabeling keeps that of
// its source. Both report it.
func TestMLXGlobalScale(t *testing.T) {
	src := openModel(t, writeModel(t, square(), madeConfig))
	mlx := convention(t, "mlx")
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: mlx.Name})
	if err != nil || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "clients of convention mlx read no global scale of nvfp4") ||
		plan.Quantizer.Arithmetic != quant.BlockNearest {
		t.Errorf("notes %q (%v)", plan.Notes, err)
	}
	dir, dst := filepath.Join(t.TempDir(), "ct"), filepath.Join(t.TempDir(), "mlx")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}}, RunOptions{})
	ct := openModel(t, dir)
	plan, err = planRelabel(ct, relabeling{Convention: mlx.Name})
	if err != nil || len(plan.Notes) != 1 || !strings.HasPrefix(plan.Notes[0], "12 weights have a global scale") {
		t.Errorf("notes %q (%v)", plan.Notes, err)
	}
	relabel(t, ct, dst, relabeling{Convention: mlx.Name})
	got := openModel(t, dst)
	w, _ := ct.Lookup("model.layers.0.mlp.down_proj.weight")
	if stored := global(t, got, "model.layers.0.mlp.down_proj.global_scale"); math.Abs(float64(stored-w.Global*448*6)) > 1e-6*float64(stored) {
		t.Errorf("global_scale is %g of a scale of %g", stored, w.Global)
	}
}

// convention returns the convention of a name.
func convention(t testing.TB, name string) *checkpoint.Convention {
	t.Helper()
	c, err := checkpoint.LookupConvention(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSidecar: a checkpoint with a configuration in hf_quant_config.json alone is recognized.
// The file is not copied where it would be wrong.
func TestSidecar(t *testing.T) {
	src := openModel(t, writeModel(t, square(), madeConfig))
	dir := filepath.Join(t.TempDir(), "quantized")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "modelopt"}, RunOptions{})
	for _, config := range []string{madeConfig,
		strings.Replace(madeConfig, `"eps"`, `"text_config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": `+
			`"W4A16_NVFP4", "ignore": ["lm_head"]}}, "eps"`, 1)} {
		writeText(t, filepath.Join(dir, hf.ConfigName), config)
		m := openModel(t, dir)
		if len(m.Problems) > 0 || m.Convention == nil || m.Convention.Name != "modelopt" || m.Quantized() != 12 || !slices.Equal(m.Ignore,
			[]string{"lm_head"}) {
			t.Fatalf("it is %v, %d weights quantized: %v", m.Convention, m.Quantized(), m.Problems)
		}
		plan, err := PlanDequantize(t.Context(), m.Source, safetensors.F32)
		if err != nil {
			t.Fatal(err)
		}
		back := filepath.Join(t.TempDir(), "back")
		if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		decoded := openModel(t, back)
		compare(t, m, decoded)
		if _, ok := decoded.Source.Companion("hf_quant_config.json"); ok || strings.Contains(string(decoded.Source.Config),
			"quantization_config") {
			t.Errorf("the decoded checkpoint says that it is quantized: %s", decoded.Source.Config)
		}
	}
}

// TestRequantize: quantizing a quantized source is an error, unless the caller asks for it.
// Then the files equal those of dequantizing first, and unquantized weights are decoded.
func TestRequantize(t *testing.T) {
	src := openModel(t, writeModel(t, square(), madeConfig))
	first, back := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "back")
	quantize(t, src, first, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.FP8Block}, Convention: "deepseek"}, RunOptions{})
	a := openModel(t, first)
	plan, err := PlanDequantize(t.Context(), a.Source, safetensors.F32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []quant.Format{quant.MXFP8, quant.NVFP4} {
		o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Exclude: patterns(`layers\.0\.mlp`)}
		if _, err := PlanQuantize(t.Context(), a.Source, o); !errors.Is(err, ErrQuantized) || !strings.Contains(err.Error(),
			"already quantized (deepseek, fp8-block128): start from the original checkpoint") {
			t.Errorf("error %v", err)
		}
		slow, quick := filepath.Join(t.TempDir(), "slow"), filepath.Join(t.TempDir(), "quick")
		rounds, err := PlanQuantize(t.Context(), openModel(t, back).Source, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rounds.Run(t.Context(), slow, RunOptions{}); err != nil { // with a note of the rounded weights
			t.Fatal(err)
		}
		o.Requantize = true
		plan, err := PlanQuantize(t.Context(), a.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(context.Background(), quick, RunOptions{}); err != nil { // MXFP8 takes more bytes, of which it warns
			t.Fatal(err)
		}
		want, got := openModel(t, slow), openModel(t, quick)
		sameCodes(t, want, got)
		compare(t, a, got)
		if w, ok := got.Lookup("model.layers.0.mlp.down_proj.weight"); !ok || w.Quantized() || w.Dtype != safetensors.BF16 ||
			got.Quantized() != 11 {
			t.Errorf("the excluded weight is %+v, and %d are quantized", w, got.Quantized())
		}
	}
}
