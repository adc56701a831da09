package checkpoint

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestStoredInput: compressed-tensors stores float32(2688/amax), rounded once, as the global scale of
// activations.
func TestStoredInput(t *testing.T) {
	static, err := compressedTensors.With(quant.NVFP4, "NVFP4")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(19, 4))
	for range 100000 {
		amax := float32(math.Exp2(40*random.Float64() - 20))
		got := static.StoredInput(quant.NVFP4, "a.weight", float64(amax)/2688).Value
		if want := GlobalBytes(2688 / amax); !bytes.Equal(got, want) {
			t.Fatalf("amax %g: got %x, want %x", amax, got, want)
		}
	}
}
