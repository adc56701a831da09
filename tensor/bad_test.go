package tensor_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestBadMatrices: what no matrix has, and data that does not hold it, is a panic that says
// so, wherever a matrix is made or read, also where there is memory behind the data.
func TestBadMatrices(t *testing.T) {
	const huge = 1 << 32 // its square wraps around to 0
	data, raw := make([]float32, 64)[:12], make([]byte, 128)[:24]
	bad := map[string]tensor.Dense{
		"no matrix is -3×4":                          {Rows: -3, Cols: 4, Stride: 4, Data: data},
		"no matrix is 3×-4":                          {Rows: 3, Cols: -4, Stride: -4, Data: data},
		"rows of a 3×4 matrix overlap":               {Rows: 3, Cols: 4, Stride: 3, Data: data},
		"12 elements are too few for a 3×5 matrix":   {Rows: 3, Cols: 5, Stride: 5, Data: data},
		"12 elements are too few for a 3×4 matrix":   {Rows: 3, Cols: 4, Stride: 6, Data: data},
		"0 elements are too few for a 3×4 matrix":    {Rows: 3, Cols: 4, Stride: 4},
		"too few for a 4294967296×4294967296 matrix": {Rows: huge, Cols: huge, Stride: huge, Data: data},
		"with 4611686018427387904 from row to row":   {Rows: 5, Cols: 4, Stride: 1 << 62, Data: data},
	}
	type call struct {
		name string
		call func()
		want string
	}
	calls := []call{
		{"New negative", func() { tensor.New(-2, 3) }, "no matrix is -2×3"},
		{"New negative both", func() { tensor.New(-2, -3) }, "no matrix is -2×-3"},
		{"New huge", func() { tensor.New(huge, huge) }, "no matrix is 4294967296×4294967296"},
		{"New largest", func() { tensor.New(math.MaxInt, 2) }, "no matrix is 9223372036854775807×2"},
		{"Of huge", func() { tensor.Of(huge, huge, nil) }, "0 elements do not fill a 4294967296×4294967296 matrix"},
		{"Of wrapped", func() { tensor.Of(1<<63-1, 2, make([]float32, 2)) }, "2 elements do not fill"},
		{"OfBF16 huge", func() { tensor.OfBF16(huge, huge, nil) }, "0 bytes do not fill a 4294967296×4294967296 matrix of BF16"},
		{"OfBF16 wrapped", func() { tensor.OfBF16(1<<62, 2, nil) }, "0 bytes do not fill"},
		{"OfBF16 odd", func() { tensor.OfBF16(3, 4, raw[:23]) }, "23 bytes do not fill a 3×4 matrix of BF16"},
		{"Row negative", func() { tensor.Of(3, 4, data).Row(-1) }, "out of range"},
		{"Row beyond", func() { tensor.Of(3, 4, data).Row(3) }, "out of range"},
		{"Row beyond a view", func() { tensor.Of(3, 4, data).View(0, 2, 0, 4).Row(2) }, "out of range"},
		{"At beyond", func() { tensor.Of(3, 4, data).At(1, 4) }, "out of range"},
		{"Set beyond", func() { tensor.Of(3, 4, data).Set(1, 4, 1) }, "out of range"},
		{"Row beyond BF16", func() { tensor.OfBF16(3, 4, raw).Row(3) }, "out of range"},
		{"CountNonFinite of no format", func() { tensor.CountNonFinite(raw, nil) }, "not of no format"},
		{"CountNonFinite of e4m3", func() { tensor.CountNonFinite(raw, format.E4M3) }, "not e4m3"},
		{"CountNonFinite of a part", func() { tensor.CountNonFinite(raw[:23], format.BF16) }, "23 bytes do not hold"},
		{"CountNonFinite of less", func() { tensor.CountNonFinite(raw[:1], format.F32) }, "1 bytes do not hold 0 values of f32"},
	}
	for want, d := range bad {
		b := tensor.BF16{Rows: d.Rows, Cols: d.Cols, Stride: d.Stride, Data: raw[:2*len(d.Data)]}
		calls = append(calls,
			call{"View", func() { d.View(0, 0, 0, 0) }, want},
			call{"View of all", func() { d.View(0, d.Rows, 0, d.Cols) }, want},
			call{"Transpose", func() { d.Transpose() }, want},
			call{"Clone", func() { d.Clone() }, want},
			call{"BF16.Dense", func() { b.Dense() }, want})
		for name, err := range map[string]error{"Dense": d.Validate(), "BF16": b.Validate()} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Validate of %s gives %v, want %q in it", name, err, want)
			}
		}
	}
	for _, c := range calls {
		t.Run(c.name+"/"+c.want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panics with %q, want %q in it", got, c.want)
				}
			}()
			c.call()
		})
	}
	for name, err := range map[string]error{"FromBytes": tensor.FromBytes(data, raw, nil), "ToBytes": tensor.ToBytes(raw, data, nil)} {
		if err == nil || !strings.Contains(err.Error(), "not of no format") {
			t.Errorf("%s of no format: %v", name, err)
		}
	}
	var none tensor.Dense // is a matrix, too
	if c := none.Clone(); c.Rows != 0 || none.Transpose().Cols != 0 || none.View(0, 0, 0, 0).Rows != 0 {
		t.Errorf("the clone of no matrix is %+v", c)
	}
}
