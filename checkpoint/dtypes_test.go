package checkpoint

import (
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
)

// TestDtypes: dtypes of models are those of dense values and back. Formats without a dtype are stored as U8.
func TestDtypes(t *testing.T) {
	dense := map[safetensors.Dtype]string{safetensors.BF16: "bfloat16", safetensors.F16: "float16", safetensors.F32: "float32"}
	for _, d := range safetensors.Dtypes() {
		f, ok := d.Dense()
		if name, want := dense[d]; ok != want || d.Torch() != name {
			t.Errorf("%s: values %v, called %q, want %v, %q", d, ok, d.Torch(), want, name)
			continue
		}
		if !ok {
			continue
		}
		if back := storedDtype(f); back != d || f.Bits() != d.Bits() || parseTorchDtype(dense[d]) != d ||
			parseTorchDtype("torch."+dense[d]) != d {
			t.Errorf("%s: %s of %d bits, and back %s", d, f, f.Bits(), back)
		}
	}
	for _, f := range format.All() {
		if _, dense := storedDtype(f).Dense(); !dense && storedDtype(f).Bits() > 8 {
			t.Errorf("%s is stored as %s", f, storedDtype(f))
		}
	}
	if d := parseTorchDtype(""); d != safetensors.BF16 {
		t.Errorf("without a name the dtype is %s", d)
	}
	if d := storedDtype(format.E8M0); d != safetensors.U8 {
		t.Errorf("e8m0 is stored as %s", d)
	}
}
