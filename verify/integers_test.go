package verify_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestIntegers: a tensor in a type of ggml is compared with a bound on the error of each block, which detects
// an element or a block of other values.
func TestIntegers(t *testing.T) {
	const q4K, rows, cols = 12, 4, 512
	q, err := ggml.LookupQuant("Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	raw := make([]byte, rows*cols/q.Elements*q.Bytes)
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	for block := 0; block < len(raw); block += q.Bytes {
		copy(raw[block:], []byte{0, 0x1c, 0, 0x28}) // d 2⁻⁸, dmin 2⁻⁵
	}
	decoded := make([]float32, rows*cols)
	q.Decode(decoded, raw)
	dst := filepath.Join(t.TempDir(), "dst.gguf")
	file, err := gguf.NewLayout(
		[]gguf.Spec{{Name: "blk.0.ffn_up.weight", Type: q4K, Shape: []int64{rows, cols}}},
		[]gguf.Pair{{Key: "general.architecture", Value: "llama"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := llamacpp.FileLayout(file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(dst, layout)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteTensorAt("blk.0.ffn_up.weight", raw, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	result, err := llamacpp.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	for _, one := range client.All() {
		if problems := one.Rejects(checkpoint.Read(result)); (len(problems) == 0) != (one.Name == "llamacpp" || one.Name == "ollama") {
			t.Errorf("%s: %v", one, problems)
		}
		q4K, err := checkpoint.LookupFormat("q4_k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Stores(q4K); one.Name == "vllm" && !strings.Contains(err.Error(), "vllm does not read q4_k: use one of ") {
			t.Errorf("%s: %v", one, err)
		}
	}
	for name, c := range map[string]struct {
		change func(x []float32) // of the source
		want   string
	}{
		"rounded": {func(x []float32) {
			for i := range x {
				x[i] += (2*random.Float32() - 1) * 0.2 // less than 4/15 of the largest magnitude of each block
			}
		}, ""},
		"an element": {func(x []float32) { x[cols+300] = 1.5 },
			"1 of its elements are further from the source than a block of q4_k allows; the first, at row 1, column 300, is 1.5 in the source and "},
		"a block": {func(x []float32) {
			for i := range x[:q.Elements] {
				x[i] *= -1
			}
		}, "of its elements are further from the source than a block of q4_k allows; the first, at row 0, column "},
		"not finite": {func(x []float32) { x[7] = float32(math.NaN()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := slices.Clone(decoded)
			c.change(x)
			d := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"}, config: map[string]any{}}
			var data []byte
			for _, v := range x {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
			d.set("model.layers.0.mlp.up_proj.weight", safetensors.F32, []int64{rows, cols}, data)
			dir := t.TempDir()
			d.write(t, dir)
			r := compare(t, open(t, dir), checkpoint.Read(result), verify.Options{})
			if r.Checked(verify.DecodedOnly) != 1 || r.OK() != (c.want == "") || c.want != "" && !strings.Contains(r.Problems[0].Text, c.want) {
				t.Errorf("problems are %v, want %q", r.Problems, c.want)
			}
			unbound := slices.ContainsFunc(r.NotCompared, func(part string) bool { return strings.Contains(part, "(256): they have no bound") })
			if unbound != (name == "not finite") {
				t.Errorf("not compared: %v", r.NotCompared)
			}
		})
	}
}
