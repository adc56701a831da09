package interop

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// A tool quantizes models and saves them, by a script foreign_*.py.
type tool struct {
	name        string
	script      string
	interpreter func(t *testing.T) string
	cannot      map[string]string // schemes that the tool cannot write on a CPU, and its reason
	unread      map[string]string // schemes that are not read here, and our reason
	misread     map[string]string // schemes that verify rejects, because their clients do
	whole       map[string]bool   // schemes whose experts are in one tensor, which the decoder does not load
}

var tools = []tool{
	{
		name: "compressed-tensors", script: "foreign_compressedtensors.py",
		interpreter: bitsTorch("compressed-tensors==0.20.0", "transformers==5.23.0", "accelerate==1.15.0"),
	},
}

// TestForeign reads what other tools wrote: the values are those of the tool, in every command that needs them, and
// the result of requantizing loads.
func TestForeign(t *testing.T) {
	for _, tool := range tools {
		t.Run("tool="+tool.name, func(t *testing.T) {
			out := t.TempDir()
			t.Logf("%s", lastLine(scriptOutput(t, tool.interpreter(t), tool.script, out), nil))
			schemes, err := filepath.Glob(filepath.Join(out, "*"))
			if err != nil || len(schemes) == 0 {
				t.Fatalf("the tool wrote nothing: %v", err)
			}
			for _, dir := range schemes {
				name := filepath.Base(dir)
				t.Run("scheme="+name, func(t *testing.T) {
					if text, err := os.ReadFile(filepath.Join(dir, "rejected")); err == nil {
						if want := tool.cannot[name]; want == "" || !strings.Contains(string(text), want) {
							t.Errorf("the tool says %s", text)
						}
						return
					}
					tool.check(t, name, dir)
				})
			}
		})
	}
}

// check reads a checkpoint and compares it with the tool's values.
func (o tool) check(t *testing.T, scheme, dir string) {
	source := filepath.Join(dir, "model")
	if want := o.unread[scheme]; want != "" {
		src, err := convert.Open(source)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		if _, err = convert.PlanDequantize(t.Context(), src, safetensors.F32); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("dequantize: error %v, want %q", err, want)
		}
		return
	}
	values, err := hf.Open(filepath.Join(dir, "values.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer values.Close()
	dtype := values.Tensors()[0].Dtype

	decoded := filepath.Join(dir, "decoded")
	converted(t, source, decoded, func(m *hf.Checkpoint) (*convert.Plan, error) { return convert.PlanDequantize(t.Context(), m, dtype) })
	sameValues(t, "dequantize", decoded, values)

	plain := filepath.Join(dir, "plain")
	converted(t, source, plain, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanRelabel(t.Context(), m, checkpoint.Plain().Name, "", nil)
	})
	sameCodeValues(t, source, plain)

	again := filepath.Join(dir, "again")
	converted(t, source, again, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanQuantize(t.Context(), m, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true})
	})
	for _, path := range []string{source, again} {
		if !o.whole[scheme] {
			infer(t, path)
		}
	}
	verifyForeign(t, filepath.Join(dir, "source"), source, o.misread[scheme])
}

// sameValues compares decoded weights with the values of the tool, bit by bit.
func sameValues(t *testing.T, what, dir string, values *hf.Checkpoint) {
	t.Helper()
	got, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	for _, want := range values.Tensors() {
		have, ok := got.Lookup(want.Name)
		if !ok || have.Dtype != want.Dtype || !slices.Equal(have.Shape, want.Shape) {
			t.Errorf("%s: %s is %s %v, want %s %v", what, want.Name, have.Dtype, have.Shape, want.Dtype, want.Shape)
			continue
		}
		a, b := make([]byte, want.Bytes()), make([]byte, want.Bytes())
		if err := got.ReadTensorAt(want.Name, a, 0); err != nil {
			t.Fatal(err)
		}
		if err := values.ReadTensorAt(want.Name, b, 0); err != nil {
			t.Fatal(err)
		}
		size, different := want.Dtype.Bits()/8, 0
		for i := 0; i < len(a); i += size {
			if !slices.Equal(a[i:i+size], b[i:i+size]) {
				different++
			}
		}
		if different > 0 {
			t.Errorf("%s: %s: %d of %d values differ", what, want.Name, different, len(a)/size)
		}
	}
	t.Logf("%s: %d weights have the values of the tool", what, len(values.Tensors()))
}

// sameCodeValues compares the values of codes in two checkpoints. Clients that divide by the inverse of a global scale have
// other last bits, so those of the codes are compared.
func sameCodeValues(t *testing.T, source, dst string) {
	t.Helper()
	a, b := openForeign(t, source), openForeign(t, dst)
	for _, want := range a.Weights {
		got, ok := b.Lookup(want.Name)
		if !ok || got.FormatName() != want.FormatName() {
			t.Errorf("convert: %s is missing, or in another format", want.Name)
			continue
		}
		if !want.Quantized() {
			continue
		}
		rows, cols := want.Matrix()
		tile := checkpoint.Tile{To: rows, ToCol: cols}
		x, err := want.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		y, err := got.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Dequantize(1).Data, y.Dequantize(1).Data) {
			t.Errorf("convert: %s has other values", want.Name)
		}
	}
}

func openForeign(t *testing.T, dir string) *checkpoint.Model {
	t.Helper()
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return checkpoint.Read(source)
}

// infer computes logits, as eval and run do.
func infer(t *testing.T, dir string) {
	t.Helper()
	m, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{Inference: true})
	if err != nil {
		t.Errorf("load: %v", err)
		return
	}
	f32, err := recipe.Lookup("f32")
	if err != nil {
		t.Fatal(err)
	}
	var logits tensor.Dense
	if logits, err = m.Infer(&nn.Scope{Recipe: f32, Inference: true}, []int32{1, 2, 3, 4}, 1); err != nil {
		t.Errorf("infer: %v", err)
		return
	}
	if slices.ContainsFunc(logits.Data, func(v float32) bool { return v-v != 0 }) {
		t.Errorf("%s: logits are not finite", filepath.Base(dir))
	}
}

// verifyForeign compares a checkpoint with its source.
func verifyForeign(t *testing.T, source, dst, misread string) {
	t.Helper()
	a, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := hf.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	report, err := verify.Compare(context.Background(), a, b, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if misread == "" || !strings.Contains(p.String(), misread) {
			t.Errorf("verify: %s", p)
		}
	}
}
