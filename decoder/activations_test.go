package decoder

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// observed returns a calibration of a model, multiplied by a factor.
func observed(t testing.TB, m *Model, factor float64) *convert.Calibration {
	t.Helper()
	c := &convert.Calibration{Input: map[string]float64{}, Key: map[string]float64{}, Value: map[string]float64{}}
	modules := map[string][]string{}
	for i := range m.Layers() {
		for _, l := range m.LinearModules(i) {
			modules[l.Name] = l.Modules
		}
	}
	s := scope(t, "bf16")
	s.Observer.Operand = func(o nn.Observation) {
		if o.Operand == nn.Input && strings.Contains(o.Module, ".layers.") {
			for _, module := range modules[o.Module] {
				c.Input[module] = max(c.Input[module], factor*float64(quant.Amax(o.Source, 1)))
			}
		}
	}
	s.Observer.KeysValues = func(module string, keys, values tensor.Dense) {
		key, value := module+".k_proj", module+".v_proj"
		c.Key[key] = max(c.Key[key], factor*float64(quant.Amax(keys, 1)))
		c.Value[value] = max(c.Value[value], factor*float64(quant.Amax(values, 1)))
	}
	tokens, _ := text(2, 64)
	if _, err := m.Infer(s, tokens, 2); err != nil {
		t.Fatal(err)
	}
	return c
}

// calibrated quantizes a saved model with the scales of a calibration.
func calibrated(t testing.TB, source string, f quant.Format, convention string, c *convert.Calibration) string {
	t.Helper()
	src, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	plan, err := convert.PlanQuantize(t.Context(), src, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: convention,
		Calibration: c})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "low")
	if _, err := plan.Run(context.Background(), dir, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestStoredScales checks that activations are quantized with the stored scales: a scale 1000 times
// too large or too small changes the loss, and that of a calibration hardly does.
func TestStoredScales(t *testing.T) {
	m := trained(t, small)
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	tokens, targets := text(2, 64)
	loss := func(dir string, activations bool) float64 {
		m, err := Load(t.Context(), dir, LoadOptions{Activations: activations})
		if err != nil {
			t.Fatal(err)
		}
		wantStored, wantCaches := 0, 0
		if activations {
			wantStored, wantCaches = 7*small.NumHiddenLayers, small.NumHiddenLayers
		}
		if stored, perToken, caches := m.ActivationScales(); stored != wantStored || perToken != 0 || caches != wantCaches {
			t.Errorf("got %d stored scales, %d per token, %d caches, want %d, 0, %d", stored, perToken, caches, wantStored, wantCaches)
		}
		l, err := m.Loss(scope(t, "bf16"), tokens, targets, 2)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, f := range []quant.Format{quant.FP8Tensor, quant.NVFP4} {
		for _, convention := range []string{"compressed-tensors", "modelopt"} {
			right := observed(t, m, 1)
			low := calibrated(t, dir, f, convention, right)
			weights, both := loss(low, false), loss(low, true)
			if weights == both || math.Abs(weights-both) > 0.05 {
				t.Errorf("%s, %s: the loss is %g with quantized activations, %g without", convention, f, both, weights)
			}
			for _, factor := range []float64{1e3, 1e-3} {
				inputs := *right
				inputs.Input = observed(t, m, factor).Input
				wrong := calibrated(t, dir, f, convention, &inputs)
				if l := loss(wrong, false); l != weights {
					t.Errorf("%s, %s: scales of activations change the loss of weights alone from %g to %g", convention, f, weights, l)
				}
				if l := loss(wrong, true); l == both || factor < 1 && math.Abs(l-weights) < 4*math.Abs(both-weights) {
					t.Errorf("%s, %s: scales %g times right have the loss %g, the right ones %g, BF16 activations %g", convention, f, factor, l, both,
						weights)
				}
			}
			cache := *right
			cache.Key, cache.Value = observed(t, m, 1e-3).Key, observed(t, m, 1e-3).Value
			if l := loss(calibrated(t, dir, f, convention, &cache), true); l == both {
				t.Errorf("%s, %s: scales of the KV cache 1000 times too small have the loss %g, the right ones %g", convention, f, l, both)
			}
		}
	}
}

// TestStaticByHand compares a layer under a stored scale with its definition in
// float64.
func TestStaticByHand(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	random := func(rows, cols int) tensor.Dense {
		x := tensor.New(rows, cols)
		for i := range x.Data {
			x.Data[i] = float32(rng.NormFloat64())
		}
		return x
	}
	const scale = 0.0037 // FP8 saturates above 1.66, NVFP4 not
	x := random(5, 32)
	for _, f := range []quant.Format{quant.FP8Tensor, quant.NVFP4} {
		w, err := quant.Quantizer{Format: f}.Rowwise(random(3, 32), quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		layer := &frozen{name: "l", parts: []frozenPart{{weight: w, input: &activation{format: f, scale: scale}}}}
		y, err := layer.forward(scope(t, "f32"), x)
		if err != nil {
			t.Fatal(err)
		}
		weights := w.Dequantize(1)
		for i := range x.Rows {
			values := make([]float64, x.Cols)
			for from := 0; from < x.Cols; from += 16 {
				block := x.Row(i)[from : from+16]
				factor, element := float64(float32(scale)), format.E4M3
				if f.Global {
					amax := 0.0
					for _, v := range block {
						amax = max(amax, math.Abs(float64(v)))
					}
					factor *= float64(format.E4M3.Decode(format.E4M3.Encode(float32(amax / 6 / factor))))
					element = format.E2M1
				}
				for j, v := range block {
					values[from+j] = factor * float64(element.Decode(element.Encode(float32(float64(v)/factor))))
				}
			}
			for j := range weights.Rows {
				want := 0.0
				for k, v := range values {
					want += v * float64(weights.Row(j)[k])
				}
				if got := float64(y.Row(i)[j]); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("%s: element %d, %d is %g, want %g", f, i, j, got, want)
				}
			}
		}
	}
}

// TestTokenScales checks that with dynamic scales the logits of a sequence do not depend on other
// sequences of the batch, and differ from those with one scale for the batch.
func TestTokenScales(t *testing.T) {
	m := trained(t, small)
	phrase, _ := text(1, 32)
	other := slices.Repeat([]int32{7, 200, 131, 64}, 8)
	for _, f := range []quant.Format{quant.NVFP4, quant.NVFP4x16, quant.FP8Tensor, quant.FP8Row, quant.FP8Block, quant.MXFP8} {
		low, err := m.Quantize(quant.Quantizer{Format: f}, true, 1)
		if err != nil {
			t.Fatal(err)
		}
		first := func(second []int32) []float32 {
			y, err := low.Infer(scope(t, "bf16"), slices.Concat(phrase, second), 2)
			if err != nil {
				t.Fatal(err)
			}
			return y.View(0, len(phrase), 0, y.Cols).Data[:len(phrase)*y.Cols]
		}
		if !slices.Equal(first(phrase), first(other)) {
			t.Errorf("%s: the logits of a sequence depend on the other one in the batch", f)
		}
	}

	// A token 1000 times as large as another has its own scale.
	x := tensor.Of(2, 16, make([]float32, 32))
	for i := range 16 {
		x.Data[i], x.Data[16+i] = float32(i)/16, 5000*float32(16-i)
	}
	s := scope(t, "f32")
	both, err := (&activation{format: quant.NVFP4}).quantize(s, x, quantizedInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(both.tokens) != x.Rows {
		t.Fatalf("%d tokens have their own scale, want %d", len(both.tokens), x.Rows)
	}
	for i, token := range both.tokens {
		alone, err := quant.Quantizer{Format: quant.NVFP4}.Rowwise(x.View(i, i+1, 0, 16), quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(token.Dequantize(1).Data, alone.Dequantize(1).Data) {
			t.Errorf("token %d has other values than alone", i)
		}
	}
	batch, err := quant.Quantizer{Format: quant.NVFP4}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(batch.Dequantize(1).Row(0), both.tokens[0].Dequantize(1).Data) {
		t.Error("one scale for the batch gives the small token the values of its own scale")
	}
}

// TestBadScales checks that unusable scales are errors that name the tensor.
func TestBadScales(t *testing.T) {
	for _, scale := range []float32{0, -1, float32(math.NaN()), float32(math.Inf(1)), 1e-40} {
		if err := usableScale("x.input_scale", scale); err == nil || !strings.Contains(err.Error(), "x.input_scale is ") {
			t.Errorf("%g: %v", scale, err)
		}
	}
}
