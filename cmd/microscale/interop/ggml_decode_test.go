package interop

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/gguf/ggml"
)

// TestGGMLDecode compares the values of random blocks with those of the Python package gguf.
// Scales are any FP16 number, including NaN and Inf.
func TestGGMLDecode(t *testing.T) {
	dir := t.TempDir()
	script(t, python(t, "gguf==0.19.0", "numpy==2.4.6"), "ggml_decode.py", dir)
	for _, name := range []string{"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ1_S",
		"IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0"} {
		q, err := ggml.LookupQuant(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := os.ReadFile(filepath.Join(dir, name+".blocks"))
		if err != nil {
			t.Fatal(err)
		}
		values, err := os.ReadFile(filepath.Join(dir, name+".values"))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(blocks)/q.Bytes*q.Elements)
		if len(values) != 4*len(got) || len(got) == 0 {
			t.Fatalf("%s: %d blocks and %d values", name, len(blocks)/q.Bytes, len(values)/4)
		}
		q.Decode(got, blocks)
		for i, v := range got {
			want := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
			if v != want && !(v != v && want != want) {
				t.Errorf("%s: element %d of block %d is %g, want %g", name, i%q.Elements, i/q.Elements, v, want)
				break
			}
		}
	}
}
