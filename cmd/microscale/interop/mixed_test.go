package interop

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// mixed writes a GGUF file like the published ones of gpt-oss: the experts of the file experts, in MXFP4,
// and the other matrices of the BF16 file others in Q8_0, except those of the routers.
func mixed(t *testing.T, experts, others, dst string) {
	t.Helper()
	low, err := gguf.Open(experts)
	if err != nil {
		t.Fatal(err)
	}
	defer low.Close()
	high, err := gguf.Open(others)
	if err != nil {
		t.Fatal(err)
	}
	defer high.Close()
	var specs []gguf.Spec
	data := map[string][]byte{}
	for _, info := range low.Tensors {
		from := low
		if info.Type != gguf.MXFP4 || !strings.Contains(info.Name, "_exps.") {
			from = high
			info, _ = high.Lookup(info.Name)
		}
		raw := make([]byte, info.Bytes())
		if err := from.ReadTensorAt(raw, info, 0); err != nil {
			t.Fatal(err)
		}
		spec := gguf.Spec{Name: info.Name, Type: info.Type, Shape: info.Shape}
		if info.Type == gguf.BF16 && len(info.Shape) == 2 && !strings.Contains(info.Name, "ffn_gate_inp") {
			spec.Type, raw = gguf.Q8_0, q80(t, raw, int(info.Shape[0]), int(info.Shape[1]))
		}
		specs, data[spec.Name] = append(specs, spec), raw
	}
	l, err := gguf.NewLayout(specs, slices.DeleteFunc(low.Metadata, func(p gguf.Pair) bool { return checkpoint.IsOwnMetadata(p.Key) }))
	if err != nil {
		t.Fatal(err)
	}
	layout, err := llamacpp.FileLayout(l)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(dst, layout)
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range data {
		if err := w.WriteTensorAt(name, raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// q80 returns the structs of a BF16 matrix in Q8_0.
func q80(t *testing.T, raw []byte, rows, cols int) []byte {
	t.Helper()
	x := tensor.New(rows, cols)
	if err := tensor.FromBytes(x.Data, raw, format.BF16); err != nil {
		t.Fatal(err)
	}
	q, err := quant.Quantizer{Format: quant.Q8_0}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	structs, _ := checkpoint.GGUF().Struct(quant.Q8_0)
	return checkpoint.Interleaved(nil, structs, q)
}

// TestMixedGGUF reads a file with attention in Q8_0 and experts in MXFP4: its values decoded, its codes in
// convention plain, and its values in another format are the same model. llama.cpp runs it, and the file of
// its values, with our losses, and a model in several files with the loss of one file.
func TestMixedGGUF(t *testing.T) {
	source, root := filepath.Join(t.TempDir(), "source"), t.TempDir()
	writeGPTOSS(t, source)
	path := func(name string) string { return filepath.Join(root, name) }
	for _, f := range []quant.Format{quant.BF16, quant.MXFP4} {
		if err := (layoutOf{"gguf", f, "", ""}).write(t, source, path(f.Name+".gguf")); err != nil {
			t.Fatal(err)
		}
	}
	converted(t, source, path("split"), func(m *hf.Checkpoint) (*convert.Plan, error) {
		plan, err := convert.PlanQuantize(t.Context(), m, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
			Convention: "gguf"})
		if err != nil {
			return nil, err
		}
		return plan.Split(plan.Bytes() / 3)
	})
	parts, err := filepath.Glob(path("split/*.gguf"))
	if err != nil || len(parts) < 3 {
		t.Fatalf("parts %q (%v)", parts, err)
	}
	mixed(t, path("mxfp4.gguf"), path("bf16.gguf"), path("mixed.gguf"))
	values(t, path("mixed.gguf"), path("values"))
	for dst, plan := range map[string]func(m *hf.Checkpoint) (*convert.Plan, error){
		"plain": func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanRelabel(t.Context(), m, "plain", "", nil)
		},
		"mxfp8": func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanQuantize(t.Context(), m, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true})
		},
	} {
		converted(t, path("mixed.gguf"), path(dst), plan)
	}
	if err := (layoutOf{"gguf", quant.BF16, "", ""}).write(t, path("values"), path("values.gguf")); err != nil {
		t.Fatal(err)
	}
	formats := map[string]int{}
	plain, err := hf.Open(path("plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, w := range checkpoint.Read(plain).Weights {
		if w.Quantized() {
			formats[w.FormatName()]++
		}
	}
	if formats["q8_0"] != 2*4+2 || formats["mxfp4"] != 2*2 {
		t.Errorf("plain: got weights in %v, want 10 in q8_0 and 4 in mxfp4", formats)
	}
	text := lossText(t)
	if err := os.Truncate(text, 512); err != nil { // two windows
		t.Fatal(err)
	}
	want := ownLoss(t, path("mixed.gguf"), text)
	for name, tolerance := range map[string]float64{"values": 1e-5, "plain": 1e-5, "mxfp8": 0.05} {
		if got := ownLoss(t, path(name), text); !(math.Abs(got-want) < tolerance) {
			t.Errorf("%s: our loss is %.6f, of the file %.6f", name, got, want)
		}
	}
	file, err := convert.Open(path("mixed.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := convert.PlanRelabel(t.Context(), file, "gpt-oss", "", nil); err == nil || !strings.Contains(err.Error(),
		"convention gpt-oss stores one block format in a checkpoint, not q8_0, mxfp4: choose convention ") {
		t.Errorf("got error %v", err)
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(t, "%s is not started on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	libraries, result := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64"), path("result.json")
	script(t, python(t, "numpy==2.4.6"), "run_libllama.py", libraries, text, lossWindow, result, path("mixed.gguf"), path("values.gguf"),
		path("mxfp4.gguf"), parts[0])
	got := map[string]loss{}
	readJSON(t, result, &got)
	if one, split := got[path("mxfp4.gguf")], got[parts[0]]; split != one || split.Nats == 0 || split.Rejected != "" {
		t.Errorf("llama.cpp's loss of %d files is %+v, of one file %+v", len(parts), split, one)
	}
	for _, name := range []string{"mixed.gguf", "values.gguf"} {
		l, ours := got[path(name)], ownLoss(t, path(name), text)
		t.Logf("%s: llama.cpp %.5f, ours %.5f nats per byte", name, l.Nats, ours)
		if l.Rejected != "" || !(math.Abs(l.Nats-ours) < 0.005) {
			t.Errorf("%s: llama.cpp's loss is %.5f, ours %.5f: %s", name, l.Nats, ours, l.Rejected)
		}
	}
}
