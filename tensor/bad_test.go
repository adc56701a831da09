package tensor_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestBadMatrices checks that functions panic with a clear message on an invalid shape and on
// data that is too short, also if the slice has more capacity.
func TestBadMatrices(t *testing.T) {
	const huge = 1 << 32 // the square wraps around to 0
	data, raw := make([]float32, 64)[:12], make([]byte, 128)[:24]
	bad := map[string]tensor.Dense{
		"invalid shape -3×4":                         {Rows: -3, Cols: 4, Stride: 4, Data: data},
		"invalid shape 3×-4":                         {Rows: 3, Cols: -4, Stride: -4, Data: data},
		"3×4 matrix: the stride, 3, is less":         {Rows: 3, Cols: 4, Stride: 3, Data: data},
		"got 12 elements, too few for a 3×5 matrix":  {Rows: 3, Cols: 5, Stride: 5, Data: data},
		"got 12 elements, too few for a 3×4 matrix":  {Rows: 3, Cols: 4, Stride: 6, Data: data},
		"got 0 elements, too few for a 3×4 matrix":   {Rows: 3, Cols: 4, Stride: 4},
		"too few for a 4294967296×4294967296 matrix": {Rows: huge, Cols: huge, Stride: huge, Data: data},
		"with stride 4611686018427387904":            {Rows: 5, Cols: 4, Stride: 1 << 62, Data: data},
	}
	type call struct {
		name string
		call func()
		want string
	}
	calls := []call{
		{"New negative", func() { tensor.New(-2, 3) }, "invalid shape -2×3"},
		{"New negative both", func() { tensor.New(-2, -3) }, "invalid shape -2×-3"},
		{"New huge", func() { tensor.New(huge, huge) }, "invalid shape 4294967296×4294967296"},
		{"New largest", func() { tensor.New(math.MaxInt, 2) }, "invalid shape 9223372036854775807×2"},
		{"New one column", func() { tensor.New(math.MaxInt/4+1, 1) }, "invalid shape 2305843009213693952×1"},
		{"Of huge", func() { tensor.Of(huge, huge, nil) }, "got 0 elements, want those of a 4294967296×4294967296 matrix"},
		{"Of wrapped", func() { tensor.Of(1<<63-1, 2, make([]float32, 2)) }, "got 2 elements"},
		{"OfBF16 huge", func() { tensor.OfBF16(huge, huge, nil) }, "got 0 bytes, want those of a 4294967296×4294967296 matrix of BF16"},
		{"OfBF16 wrapped", func() { tensor.OfBF16(1<<62, 2, nil) }, "got 0 bytes"},
		{"OfBF16 odd", func() { tensor.OfBF16(3, 4, raw[:23]) }, "got 23 bytes, want those of a 3×4 matrix of BF16"},
		{"Row negative", func() { tensor.Of(3, 4, data).Row(-1) }, "out of range"},
		{"Row beyond", func() { tensor.Of(3, 4, data).Row(3) }, "out of range"},
		{"Row beyond a view", func() { tensor.Of(3, 4, data).View(0, 2, 0, 4).Row(2) }, "out of range"},
		{"At beyond", func() { tensor.Of(3, 4, data).At(1, 4) }, "out of range"},
		{"Set beyond", func() { tensor.Of(3, 4, data).Set(1, 4, 1) }, "out of range"},
		{"Row beyond BF16", func() { tensor.OfBF16(3, 4, raw).Row(3) }, "out of range"},
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
				t.Errorf("Validate of %s: got %v, want an error with %q", name, err, want)
			}
		}
	}
	for _, c := range calls {
		t.Run(c.name+"/"+c.want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("got panic %q, want one with %q", got, c.want)
				}
			}()
			c.call()
		})
	}
	for name, err := range map[string]error{"FromBytes": tensor.FromBytes(data, raw, nil), "ToBytes": tensor.ToBytes(raw, data, nil)} {
		if err == nil || !strings.Contains(err.Error(), "got nil, want") {
			t.Errorf("%s with a nil format: got %v", name, err)
		}
	}
	var none tensor.Dense // is valid
	if c := none.Clone(); c.Rows != 0 || none.Transpose().Cols != 0 || none.View(0, 0, 0, 0).Rows != 0 {
		t.Errorf("Clone of an empty matrix: got %+v", c)
	}
}
