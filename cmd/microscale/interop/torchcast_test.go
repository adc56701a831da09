package interop

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// torchCasts are PyTorch's casts from float32 on a CPU: E4M3 saturates, including infinities,
// and the others overflow.
var torchCasts = []struct {
	dtype    string
	format   *format.Scalar
	overflow format.Overflow
}{
	{"float8_e4m3fn", format.E4M3, format.Saturate},
	{"float8_e5m2", format.E5M2, format.NonSaturating},
	{"float8_e4m3fnuz", format.E4M3FNUZ, format.NonSaturating},
	{"float8_e5m2fnuz", format.E5M2FNUZ, format.NonSaturating},
}

// TestTorchCasts compares millions of casts with PyTorch's.
func TestTorchCasts(t *testing.T) {
	interpreter := bitsTorch()(t)
	dir := t.TempDir()
	inputs := castInputs()
	data := make([]byte, 0, 4*len(inputs))
	for _, b := range inputs {
		data = binary.LittleEndian.AppendUint32(data, b)
	}
	if err := os.WriteFile(filepath.Join(dir, "inputs.f32"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	arguments := []string{dir}
	for _, c := range torchCasts {
		arguments = append(arguments, c.dtype)
	}
	script(t, interpreter, "torch_cast.py", arguments...)
	for _, c := range torchCasts {
		t.Run("type="+c.dtype, func(t *testing.T) {
			want := read(t, dir, c.dtype+".encoded")
			if len(want) != len(inputs) {
				t.Fatalf("%d codes of %d inputs", len(want), len(inputs))
			}
			for i, b := range inputs {
				x := math.Float32frombits(b)
				got := byte(c.format.EncodeWith(x, format.Conversion{Overflow: c.overflow, NaN: format.KeepSign}, 0))
				if !sameCode(want[i], got, c.format) {
					t.Fatalf("%v (%#08x) becomes %#x, with PyTorch %#x", x, b, got, want[i])
				}
			}
		})
	}
}
