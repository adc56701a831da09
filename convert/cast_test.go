package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert/internal/lossless"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// fusedSet has a fused set whose members differ in size, and weights with partial blocks.
func fusedSet() map[string][]made {
	const bf16 = safetensors.BF16
	return map[string][]made{
		shard1: {{"model.layers.0.self_attn.q_proj.weight", bf16, 0.02, []int64{256, 256}},
			{"model.layers.0.self_attn.k_proj.weight", bf16, 0.001, []int64{128, 256}}},
		shard2: {{"model.layers.0.self_attn.v_proj.weight", bf16, 0.3, []int64{128, 256}},
			{"model.layers.0.mlp.down_proj.weight", bf16, 0.05, []int64{128, 512}}},
	}
}

// plannedCast plans a cast of the checkpoint in dir.
func plannedCast(t testing.TB, dir string, o CastOptions) (*Plan, error) {
	t.Helper()
	return PlanCast(context.Background(), openGGUF(t, dir).Source, o)
}

// castTo casts the checkpoint in dir, and returns the result.
func castTo(t testing.TB, dir string, o CastOptions) (*Plan, *checkpoint.Model) {
	t.Helper()
	plan, err := plannedCast(t, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "cast")
	if _, err := plan.Run(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return plan, openModel(t, dst)
}

// sameValues compares the values that clients decode, bit for bit, and returns the number of weights in a format.
func sameValues(t testing.TB, a, b *checkpoint.Model, f quant.Format) (n int) {
	t.Helper()
	if len(b.Problems) > 0 {
		t.Fatal(b.Problems)
	}
	for _, w := range a.Weights {
		v, ok := b.Lookup(w.Name)
		if !ok {
			t.Fatalf("%s is missing", w.Name)
		}
		if v.Format.Name == f.Name {
			n++
		}
		rows, _ := w.Matrix()
		x, err := w.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		y, err := v.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Data {
			if math.Float32bits(x.Data[i]) != math.Float32bits(y.Data[i]) {
				t.Fatalf("%s: element %d decodes to %g, and did to %g", w.Name, i, y.Data[i], x.Data[i])
			}
		}
	}
	return n
}

// TestCast casts quantized checkpoints by the rows of the table that are exact for such weights. Results decode to the same bits,
// fused weights share a global scale, and casts back restore the codes.
func TestCast(t *testing.T) {
	src := openModel(t, writeModel(t, fusedSet(), madeConfig))
	powers := func(f quant.Format) quant.Quantizer { return quant.Quantizer{Format: f, PowerOfTwo: true} }
	for _, tc := range []struct {
		from       quant.Quantizer
		convention string
		to         quant.Format
		into       string
		want       string // convention and scheme of the result
	}{
		{quant.Quantizer{Format: quant.MXFP4}, "", quant.NVFP4, "", "compressed-tensors NVFP4A16"},
		{quant.Quantizer{Format: quant.MXFP4}, "", quant.NVFP4, "modelopt", "modelopt W4A16_NVFP4"},
		{quant.Quantizer{Format: quant.MXFP4}, "", quant.NVFP4, "plain", "plain "},
		{quant.Quantizer{Format: quant.MXFP4}, "mlx", quant.MXFP8, "", "mlx mxfp8"},
		{quant.Quantizer{Format: quant.MXFP4}, "", quant.FP8Block, "", "compressed-tensors FP8_BLOCK_A16"},
		{powers(quant.FP8Block), "deepseek", quant.MXFP8, "", "compressed-tensors MXFP8"},
		{powers(quant.FP8Row), "", quant.MXFP8, "modelopt", "modelopt MXFP8"},
		{quant.Quantizer{Format: quant.FP8Tensor}, "", quant.FP8Row, "", "compressed-tensors FP8_DYNAMIC"},
		{quant.Quantizer{Format: quant.FP8Tensor}, "", quant.FP8Block, "deepseek", "deepseek FP8"},
		{quant.Quantizer{Format: quant.FP8Block}, "", quant.FP8Vec128, "", "plain "},
		{quant.Quantizer{Format: quant.NVFP4}, "", quant.NVFP4, "modelopt", "modelopt W4A16_NVFP4"},
	} {
		t.Run(fmt.Sprintf("%s to %s %s", tc.from.Format, tc.to, tc.into), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "quantized")
			quantize(t, src, dir, QuantizeOptions{Quantizer: tc.from, Convention: tc.convention}, RunOptions{})
			a := openModel(t, dir)
			plan, b := castTo(t, dir, CastOptions{Format: tc.to, Convention: tc.into})
			if n, blocks := plan.Inexact(); n > 0 || blocks == 0 || len(plan.Casts) != 4 {
				t.Errorf("%d of %d blocks of %d weights are not exact", n, blocks, len(plan.Casts))
			}
			if got := b.Convention.Name + " " + plan.Scheme; got != tc.want {
				t.Errorf("it is in %s, want %s", got, tc.want)
			}
			if tc.from.Format.Name != tc.to.Name || tc.into == "" { // clients of the two compute other bits
				if n := sameValues(t, a, b, tc.to); n != 4 {
					t.Errorf("%d weights are in %s, want 4", n, tc.to)
				}
			}
			if tc.to.Global {
				q, _ := b.Lookup("model.layers.0.self_attn.q_proj.weight")
				v, _ := b.Lookup("model.layers.0.self_attn.v_proj.weight")
				down, _ := b.Lookup("model.layers.0.mlp.down_proj.weight")
				if q.Global != v.Global || q.Global == down.Global {
					t.Errorf("global scales are %g, %g and %g, want those of the fused set equal", q.Global, v.Global, down.Global)
				}
			}
			if row, ok := lossless.Lookup(tc.to, tc.from.Format); !ok || row.To.Name == row.From.Name || row.To == quant.NVFP4 {
				return
			}
			_, c := castTo(t, b.Source.Path, CastOptions{Format: tc.from.Format, Convention: a.Convention.Name})
			sameCodes(t, a, c)
		})
	}
}

// spread is a checkpoint in MXFP4 whose scales differ too much for NVFP4: one block of 2^-40 in each weight.
func spread(t *testing.T) string {
	t.Helper()
	src := openModel(t, writeModel(t, fusedSet(), madeConfig))
	dir := filepath.Join(t.TempDir(), "mxfp4")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "plain"}, RunOptions{})
	m := openModel(t, dir)
	changed := map[string][]byte{}
	for _, w := range m.Weights {
		rows, cols := w.Matrix()
		q, err := w.ReadCodes(checkpoint.Tile{To: rows, ToCol: cols})
		if err != nil {
			t.Fatal(err)
		}
		q.Scales[len(q.Scales)-1] = 127 - 40
		tensors, err := w.Rescaled(q)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range tensors {
			changed[name] = data
		}
	}
	dst := filepath.Join(t.TempDir(), "spread")
	if err := Rescale(dst, dir, changed); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestCastInexact: blocks without an exact cast are an error that writes nothing, unless they may be rounded. Then all others
// are exact.
func TestCastInexact(t *testing.T) {
	dir := spread(t)
	plan, err := plannedCast(t, dir, CastOptions{Format: quant.NVFP4})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := plan.Inexact(); n != 8 { // both halves of a block in each of four weights
		t.Errorf("%d blocks are not exact, want 8", n)
	}
	for _, c := range plan.Casts {
		why := lossless.Range.String()
		if len(c.First) != 2 || c.Reasons[why] != 2 || c.First[0].Why != why || int64(c.First[1].Row+1)*int64(c.First[1].Col+1) != c.Blocks {
			t.Errorf("%s: %+v", c.Weight, c)
		}
	}
	dst := filepath.Join(t.TempDir(), "dst")
	_, err = plan.Run(t.Context(), dst, RunOptions{})
	if !errors.Is(err, ErrInexact) || !strings.Contains(err.Error(), "8 of 12288 blocks have no exact cast to nvfp4, the first in "+
		"model.layers.0.self_attn.k_proj.weight, row 127, block 14: beyond the range of scales; nothing was written") {
		t.Errorf("error %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(dst), "*")); len(files) > 0 {
		t.Errorf("it wrote %v", files)
	}
	_, b := castTo(t, dir, CastOptions{Format: quant.NVFP4, Requantize: true})
	a := openModel(t, dir)
	for _, w := range a.Weights {
		v, _ := b.Lookup(w.Name)
		rows, cols := w.Matrix()
		x, err := w.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		y, err := v.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Data[:rows*cols-32] {
			if math.Float32bits(x.Data[i]) != math.Float32bits(y.Data[i]) {
				t.Fatalf("%s: element %d decodes to %g, and did to %g", w.Name, i, y.Data[i], x.Data[i])
			}
		}
	}
	if _, err := plannedCast(t, dir, CastOptions{Format: quant.FP8Row}); err == nil || !strings.Contains(err.Error(),
		"no lossless cast from mxfp4 to fp8-row: mxfp4 can be cast to nvfp4, mxfp8, fp8-block128, fp8-vec128; or quantize the original") {
		t.Errorf("error %v", err)
	}
}

// TestCastFolds: clients of mlx read no global scale, so that a cast from MXFP4 uses block scales alone.
func TestCastFolds(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"model.layers.0.mlp.down_proj.weight", safetensors.BF16, 0.05,
		[]int64{128, 512}}}}, madeConfig))
	dir := filepath.Join(t.TempDir(), "mxfp4")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}}, RunOptions{})
	_, b := castTo(t, dir, CastOptions{Format: quant.NVFP4, Client: "mlx"})
	sameValues(t, openModel(t, dir), b, quant.NVFP4)
	if w, _ := b.Lookup("model.layers.0.mlp.down_proj.weight"); w.Global != 1 || b.Convention.Name != "mlx" {
		t.Errorf("the global scale is %g in %s", w.Global, b.Convention)
	}
}

// TestCastUnifies: members of a fused set with several global scales get one, and keep their values where the ratio is a power
// of two.
func TestCastUnifies(t *testing.T) {
	src := openModel(t, writeModel(t, fusedSet(), madeConfig))
	dir := filepath.Join(t.TempDir(), "nvfp4")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "plain"}, RunOptions{})
	for _, tc := range []struct {
		factor float32
		exact  bool
	}{{0.25, true}, {0.3, false}} {
		m := openModel(t, dir)
		w, _ := m.Lookup("model.layers.0.self_attn.v_proj.weight")
		split := filepath.Join(t.TempDir(), "split")
		part, _ := w.Part(checkpoint.Global)
		if err := Rescale(split, dir, map[string][]byte{part.Name: checkpoint.GlobalBytes(w.Global * tc.factor)}); err != nil {
			t.Fatal(err)
		}
		plan, err := plannedCast(t, split, CastOptions{Format: quant.NVFP4})
		if err != nil {
			t.Fatal(err)
		}
		n, _ := plan.Inexact()
		if (n == 0) != tc.exact {
			t.Errorf("factor %g: %d blocks are not exact", tc.factor, n)
		}
		if !tc.exact {
			continue
		}
		_, b := castTo(t, split, CastOptions{Format: quant.NVFP4})
		sameValues(t, openModel(t, split), b, quant.NVFP4)
		q, _ := b.Lookup("model.layers.0.self_attn.q_proj.weight")
		if v, _ := b.Lookup("model.layers.0.self_attn.v_proj.weight"); v.Global != q.Global {
			t.Errorf("global scales are %g and %g", v.Global, q.Global)
		}
	}
}

// TestCastResumes: the result does not depend on threads, and a canceled cast resumes to the same bytes.
func TestCastResumes(t *testing.T) {
	dir := spread(t)
	o := CastOptions{Format: quant.NVFP4, Requantize: true, Threads: 1}
	_, want := castTo(t, dir, o)
	o.Threads = 3
	plan, err := plannedCast(t, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = plan.Run(ctx, dst, RunOptions{Resume: true, Progress: func(p verify.Progress) {
		if p.Done > p.Total/2 {
			cancel()
		}
	}})
	if err == nil {
		t.Fatal("the run was not canceled")
	}
	if plan, err = plannedCast(t, dir, o); err != nil {
		t.Fatal(err)
	}
	result, err := plan.Run(t.Context(), dst, RunOptions{Resume: true, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !result.Resumed {
		t.Log("nothing was recorded before")
	}
	a, b := contents(t, dst), contents(t, want.Source.Path)
	for name := range b {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestCastZeros: blocks of zeros with a large scale do not raise the global scale, and rows of inexact blocks are those of the
// weight, not of a tile.
func TestCastZeros(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"model.layers.0.self_attn.q_proj.weight", safetensors.BF16, 0.02, []int64{1024, 256}},
		{"model.layers.0.self_attn.k_proj.weight", safetensors.BF16, 0, []int64{64, 256}}}}, madeConfig))
	dir := filepath.Join(t.TempDir(), "mxfp4")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "plain"}, RunOptions{})
	changed := map[string][]byte{}
	for _, w := range openModel(t, dir).Weights {
		rows, cols := w.Matrix()
		q, err := w.ReadCodes(checkpoint.Tile{To: rows, ToCol: cols})
		if err != nil {
			t.Fatal(err)
		}
		if q.Scales[len(q.Scales)-1] = 127 - 40; rows == 64 {
			q.Scales[0] = 127 + 100
		}
		tensors, err := w.Rescaled(q)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range tensors {
			changed[name] = data
		}
	}
	dst := filepath.Join(t.TempDir(), "changed")
	if err := Rescale(dst, dir, changed); err != nil {
		t.Fatal(err)
	}
	plan, err := plannedCast(t, dst, CastOptions{Format: quant.NVFP4})
	if err != nil {
		t.Fatal(err)
	}
	q, k := plan.Casts[0], plan.Casts[1]
	if strings.Contains(q.Weight, "k_proj") {
		q, k = k, q
	}
	if q.Inexact != 2 || q.First[0].Row != 1023 || k.Inexact != 0 {
		t.Errorf("inexact blocks: %+v and %+v", q, k)
	}
}

// TestCastNaN: blocks whose scale is NaN have no values that could be rounded.
func TestCastNaN(t *testing.T) {
	p := &Plan{casting: &CastOptions{}, Casts: []Cast{{Weight: "w", Blocks: 4, Inexact: 2, First: []InexactBlock{{Why: "x"}},
		Reasons: map[string]int64{lossless.Range.String(): 1, lossless.NotNumber.String(): 1}}}}
	err := p.admitInexact()
	if err == nil || errors.Is(err, ErrInexact) || !strings.Contains(err.Error(), "w: 1 of 4 blocks have a scale that is NaN, and no "+
		"values: fetch") {
		t.Errorf("error %v", err)
	}
}

// TestCastGGUF casts checkpoints into GGUF files and back: values are those of the source, and the cast back has its codes. Where the
// graph of llama.cpp ignores global scales, blocks alone have scales.
func TestCastGGUF(t *testing.T) {
	for _, tc := range []struct {
		name   string
		source *checkpoint.Model
		scaled bool
	}{{"qwen2", qwen(t, 2, 256), false}, {"experts", openModel(t, writeModel(t, mixtral(), mixtralConfig)), true}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			ct, file, again := filepath.Join(dir, "ct"), filepath.Join(dir, "nvfp4.gguf"), filepath.Join(dir, "again.gguf")
			quantize(t, tc.source, ct, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}}, RunOptions{})
			plan, err := plannedCast(t, ct, CastOptions{Format: quant.NVFP4, Client: "llamacpp"})
			if err != nil {
				t.Fatal(err)
			}
			if n, blocks := plan.Inexact(); n > 0 || blocks == 0 {
				t.Errorf("%d of %d blocks are not exact", n, blocks)
			}
			if _, err := plan.Run(t.Context(), file, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			a, b := openModel(t, ct), openGGUF(t, file)
			sameValues(t, a, b, quant.NVFP4)
			for _, w := range b.Weights {
				if w.Quantized() && (w.Global == 1) == tc.scaled {
					t.Errorf("%s has the global scale %g", w.Name, w.Global)
				}
			}
			_, back := castTo(t, file, CastOptions{Format: quant.MXFP4, Convention: a.Convention.Name})
			sameCodes(t, a, back)

			relabel(t, a, filepath.Join(dir, "mxfp4.gguf"), relabeling{Convention: "gguf"})
			if plan, err = plannedCast(t, filepath.Join(dir, "mxfp4.gguf"), CastOptions{Format: quant.NVFP4, Convention: "gguf"}); err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Run(t.Context(), again, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			sameCodes(t, b, openGGUF(t, again))
		})
	}
}
