package interop

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/ggufplan"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// llamaMixtures are values of general.file_type of mixtures, besides the names of formats.
var llamaMixtures = map[string]int{"q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_0": 2, "q4_1": 3, "q4_k_s": 14, "q4_k_m": 15,
	"q5_0": 8, "q5_1": 9, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18}

// TestMixtures compares the types and bytes of all tensors of each mixture with those that llama.cpp's library writes.
func TestMixtures(t *testing.T) {
	slow.Long(t, "it quantizes a model 26 times")
	dir := t.TempDir()
	source := filepath.Join(dir, "source.gguf")
	c, err := sample.Open(t.Context(), sample.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	plan, err := convert.PlanQuantize(t.Context(), c, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.BF16},
		Convention: "gguf"})
	if err == nil {
		_, err = plan.Run(t.Context(), source, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, name := range ggufplan.Names() {
		jobs = append(jobs, fmt.Sprintf("%s=%d", name, llamaMixtures[name]))
	}
	libraries := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")
	script(t, python(t, "numpy==2.4.6"), "llama_quantize.py", append([]string{libraries, source, dir}, jobs...)...)
	for _, name := range ggufplan.Names() {
		t.Run(name, func(t *testing.T) {
			file, err := ggufplan.Read(name, source)
			if err != nil {
				t.Fatal(err)
			}
			if int(file.FileType) != llamaMixtures[name] {
				t.Errorf("general.file_type is %d, want %d", file.FileType, llamaMixtures[name])
			}
			o := convert.QuantizeOptions{Convention: "gguf"}
			if o.Rules, err = file.Rules(); err != nil {
				t.Fatal(err)
			}
			if o.Include, err = file.Includes(); err != nil {
				t.Fatal(err)
			}
			base, err := convert.ParseRule(".", file.Format)
			if err != nil {
				t.Fatal(err)
			}
			o.Quantizer = base.Quantizer
			for i, r := range o.Rules {
				if o.Rules[i].Quantizer, err = profile.For(r.Quantizer.Format).Quantizer(r.Quantizer.Format); err != nil {
					t.Fatal(err)
				}
			}
			src, err := convert.Open(source)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = src.Close() })
			plan, err := convert.PlanQuantize(t.Context(), src, o)
			out := filepath.Join(dir, name+"-own.gguf")
			if err == nil {
				_, err = plan.Run(t.Context(), out, convert.RunOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			compareTensors(t, out, filepath.Join(dir, name+".gguf"))
		})
	}
}

// compareTensors compares the types and bytes of the tensors of two GGUF files.
func compareTensors(t *testing.T, got, want string) {
	t.Helper()
	a, err := gguf.Open(got)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err := gguf.Open(want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if len(a.Tensors) != len(b.Tensors) {
		t.Errorf("%d tensors, want %d", len(a.Tensors), len(b.Tensors))
	}
	for _, w := range b.Tensors {
		g, ok := a.Lookup(w.Name)
		if !ok || g.Type != w.Type {
			t.Errorf("%s is %v, want %v", w.Name, g.Type, w.Type)
			continue
		}
		x, y := make([]byte, g.Bytes()), make([]byte, w.Bytes())
		if err := a.ReadTensorAt(x, g, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.ReadTensorAt(y, w, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s, %v: other bytes", w.Name, w.Type)
		}
	}
}
