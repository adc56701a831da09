package checkpoint

import (
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
)

// dtypes maps dtypes to the scalar formats that they hold one by one. All other codes and scales
// are bytes, U8: E8M0 too, because few clients support F8_E8M0.
var dtypes = []struct {
	dtype  safetensors.Dtype
	scalar *format.Scalar
	torch  string // what config.json calls the dtype of a model whose weights are such values
}{
	{safetensors.BF16, format.BF16, "bfloat16"},
	{safetensors.F16, format.FP16, "float16"},
	{safetensors.F32, format.F32, "float32"},
	{safetensors.F8E4M3, format.E4M3, ""},
	{safetensors.F8E5M2, format.E5M2, ""},
	{safetensors.I8, format.INT8, ""},
	{safetensors.I8, format.S8, ""},
}

// storedDtype returns the dtype of codes or scales of a format.
func storedDtype(f *format.Scalar) safetensors.Dtype {
	for _, row := range dtypes {
		if row.scalar == f {
			return row.dtype
		}
	}
	return safetensors.U8
}

// DenseFormat returns the scalar format of a dtype that can be quantized and decoded to: BF16,
// F16 or F32. ok is false for the others.
func DenseFormat(d safetensors.Dtype) (f *format.Scalar, ok bool) {
	for _, row := range dtypes {
		if row.dtype == d && row.torch != "" {
			return row.scalar, true
		}
	}
	return nil, false
}

// DenseDtype is the inverse of DenseFormat.
func DenseDtype(f *format.Scalar) (d safetensors.Dtype, ok bool) {
	for _, row := range dtypes {
		if row.scalar == f && row.torch != "" {
			return row.dtype, true
		}
	}
	return 0, false
}

// TorchDtype returns the name of a dtype of DenseFormat in config.json, and "" for others.
func TorchDtype(d safetensors.Dtype) string {
	for _, row := range dtypes {
		if row.dtype == d {
			return row.torch
		}
	}
	return ""
}

// parseTorchDtype returns the dtype of a name in config.json, BF16 if it is unknown.
func parseTorchDtype(name string) safetensors.Dtype {
	name = strings.TrimPrefix(name, "torch.")
	for _, row := range dtypes {
		if row.torch == name && name != "" {
			return row.dtype
		}
	}
	return safetensors.BF16
}
