package checkpoint

import (
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
)

// single maps scalar formats beside dense ones to the dtypes that hold their values one by one. All other codes and
// scales are bytes, U8: E8M0 too, because few clients support F8_E8M0.
var single = map[*format.Scalar]safetensors.Dtype{
	format.E4M3: safetensors.F8E4M3,
	format.E5M2: safetensors.F8E5M2,
	format.INT8: safetensors.I8,
	format.S8:   safetensors.I8,
}

// storedDtype returns the dtype of codes or scales of a format.
func storedDtype(f *format.Scalar) safetensors.Dtype {
	if d, ok := single[f]; ok {
		return d
	}
	for _, d := range safetensors.Dtypes() {
		if dense, ok := d.Dense(); ok && dense == f {
			return d
		}
	}
	return safetensors.U8
}

// parseTorchDtype returns the dtype of a name in config.json, BF16 if it is unknown.
func parseTorchDtype(name string) safetensors.Dtype {
	name = strings.TrimPrefix(name, "torch.")
	for _, d := range safetensors.Dtypes() {
		if d.Torch() == name && name != "" {
			return d
		}
	}
	return safetensors.BF16
}
