package quant

import (
	"fmt"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/tensor"
)

// TestIntoThreads: a tensor of another format, direction or shape is not filled.
func TestIntoThreads(t *testing.T) {
	q := Quantizer{Format: MXFP8}
	fits, err := NewTensor(MXFP8, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Rowwise(tensor.New(2, 64), With{Into: fits}); err != nil {
		t.Error(err)
	}
	for _, x := range []tensor.Dense{tensor.New(3, 64), tensor.New(2, 63)} {
		if _, err := q.Rowwise(x, With{Into: fits}); err == nil {
			t.Errorf("a %d×%d matrix went into a tensor of 2×64", x.Rows, x.Cols)
		}
	}
	if _, err := q.Columnwise(tensor.New(2, 64), With{Into: fits}); err == nil {
		t.Error("a columnwise tensor went into a rowwise one")
	}
	if _, err := (Quantizer{Format: MXFP4}).Rowwise(tensor.New(2, 64), With{Into: fits}); err == nil {
		t.Error("mxfp4 went into an mxfp8 tensor")
	}
}

// TestIntoApart checks that With.Into may not share memory with the matrix, within itself or with
// the other copy, and that it is unchanged on error.
func TestIntoApart(t *testing.T) {
	const rows, cols, stride = 32, 32, 48
	data := make([]float32, 4096)
	raw := memory.Bytes(data)
	at := func(from, n int) []byte { return raw[from : from+n : from+n] }
	mx := func(d Direction, codes, scales int) *Tensor {
		return &Tensor{Format: MXFP8, Direction: d, Shape: []int{rows, cols}, Codes: at(codes, 1024), Scales: at(scales, 32), Global: 7}
	}
	vec := func(d Direction, codes, scales int) *Tensor { // scales in float32
		return &Tensor{Format: FP8Vec128, Direction: d, Shape: []int{rows, cols}, Codes: at(codes, 32*128), Scales32: data[scales/4:][:32:32],
			Global: 7}
	}
	const end = 4 * ((rows-1)*stride + cols) // of the matrix in float32, that of BF16 takes half as much
	for _, v := range []struct {
		rows, columns *Tensor
		want          string // empty: all is well
	}{
		{mx(Rowwise, end, end+1024), mx(Columnwise, end+1056, end+2080), ""},
		{mx(Rowwise, end, 4*cols), nil, ""}, // between two rows
		{mx(Rowwise, end-1, 8000), nil, "rowwise: With.Into: its codes share memory with the matrix"},
		{mx(Rowwise, 8000, 4*cols-1), nil, "rowwise: With.Into: its scales share memory with the matrix"},
		{mx(Rowwise, 8000, 9023), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{mx(Rowwise, 8000, 7969), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{nil, mx(Columnwise, 0, 8000), "columnwise: With.Into: its codes share memory with the matrix"},
		{mx(Rowwise, 8000, 9024), mx(Columnwise, 9055, 12000), "columnwise: With.Into: its codes share memory with the scales of the " +
			"rowwise copy"},
		{mx(Rowwise, 8000, 9024), mx(Columnwise, 10000, 9023), "columnwise: With.Into: its scales share memory with the codes of the " +
			"rowwise copy"},
		{vec(Rowwise, 6400, 11000), nil, ""},
		{vec(Rowwise, 6400, 10492), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{vec(Rowwise, 6400, end-4), nil, "rowwise: With.Into: its scales share memory with the matrix"},
		{vec(Rowwise, 6400, 11000), vec(Columnwise, 11127, 15300), "columnwise: With.Into: its codes share memory with the scales of the " +
			"rowwise copy"},
		{vec(Rowwise, 6400, 11000), vec(Columnwise, 12000, 11124), "columnwise: With.Into: its scales share memory with the scales of the " +
			"rowwise copy"},
	} {
		q := Quantizer{Format: MXFP8}
		if v.rows != nil {
			q.Format = v.rows.Format
		}
		_, _, err := RowwiseColumnwise(tensor.Dense{Rows: rows, Cols: cols, Stride: stride, Data: data}, Copy{q, With{Into: v.rows}},
			Copy{q, With{Into: v.columns}})
		switch {
		case v.want == "" && err != nil:
			t.Error(err)
		case v.want != "" && (err == nil || err.Error() != v.want):
			t.Errorf("got error %v, want %s", err, v.want)
		}
		for _, into := range []*Tensor{v.rows, v.columns} {
			if v.want != "" && into != nil && (into.Global != 7 || into.Amax != 0) {
				t.Errorf("%s: With.Into changed", v.want)
			}
		}
	}
	x := tensor.OfBF16(rows, cols, at(0, 2*rows*cols))
	if _, err := (Quantizer{Format: MXFP8}).RowwiseBF16(x, With{Into: mx(Rowwise, 2*rows*cols, 8000)}); err != nil {
		t.Error(err)
	}
	if _, err := (Quantizer{Format: MXFP8}).ColumnwiseBF16(x, With{Into: mx(Columnwise, 2*rows*cols-1, 8000)}); err == nil {
		t.Error("codes are written to the matrix")
	}
}

// TestDamaged checks that no operation takes a damaged tensor, even if memory follows its
// data. Operations return the error of Validate, or panic with it.
func TestDamaged(t *testing.T) {
	good := must(t)(Quantizer{Format: MXFP8x32}.Rowwise(tensor.New(64, 64), With{}))
	for name, damage := range map[string]func(t *Tensor){
		"codes":     func(t *Tensor) { t.Codes = t.Codes[:len(t.Codes)-1] },
		"scales":    func(t *Tensor) { t.Scales = t.Scales[:len(t.Scales)-1] },
		"shape":     func(t *Tensor) { t.Shape = []int{64, 96} },
		"no shape":  func(t *Tensor) { t.Shape = nil },
		"huge":      func(t *Tensor) { t.Shape = []int{1 << 40, 1 << 40} },
		"direction": func(t *Tensor) { t.Direction = 2 },
		"format":    func(t *Tensor) { t.Format = Format{} },
	} {
		t.Run(name, func(t *testing.T) {
			bad := *good
			damage(&bad)
			want := bad.Validate().Error()
			for what, f := range map[string]func() (*Tensor, error){
				"Reshape":   func() (*Tensor, error) { return bad.Reshape(64, 64) },
				"SliceRows": func() (*Tensor, error) { return bad.SliceRows(0, 32) },
				"Concat":    func() (*Tensor, error) { return Concat(good, &bad) },
				"Transpose": func() (*Tensor, error) { return bad.Transpose() },
			} {
				if _, err := f(); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
					t.Errorf("%s gives the error %v", what, err)
				}
			}
			mustPanic(t, "quant: "+want, func() { bad.Dequantize(1) })
			mustPanic(t, "quant: "+want, func() { bad.DequantizeRows(tensor.New(64, 64), 0, 1) })
		})
	}
}

// mustPanic: f panics, and says that.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if said := recover(); said == nil || fmt.Sprint(said) != want {
			t.Errorf("it panics with %v, not with %s", said, want)
		}
	}()
	f()
}

// TestBadDestination checks that values and scales are written only to destinations that hold
// them.
func TestBadDestination(t *testing.T) {
	x := must(t)(Quantizer{Format: MXFP8}.Rowwise(tensor.New(4, 64), With{}))
	data := make([]float32, 4*64)
	overlapping := tensor.Dense{Rows: 4, Cols: 64, Stride: 1, Data: data}
	mustPanic(t, "quant: "+overlapping.Validate().Error(), func() { x.DequantizeRows(overlapping, 0, 1) })
	mustPanic(t, "quant: scales of row 0 of 4: got a buffer for 1, want 2", func() { x.RowScales(data[:1], 0) })
	mustPanic(t, "quant: scales of row 4 of 4: got a buffer for 2, want 2", func() { x.RowScales(data[:2], 4) })
	mustPanic(t, "quant: scales of row -1 of 4: got a buffer for 2, want 2", func() { x.RowScales(data[:2], -1) })
	for _, v := range data {
		if v != 0 {
			t.Fatal("something is written")
		}
	}
}

// TestWithPointsIntoThreads: what With points to may be in the tensor that is filled.
func TestWithPointsIntoThreads(t *testing.T) {
	x := benchMatrix(8, 64)
	given := float32(8)
	for _, v := range []struct {
		format Format
		with   With
		point  func(*With, *Tensor) *float32
	}{
		{FP8Tensor, With{Inverse: &given}, func(w *With, t *Tensor) *float32 { w.Inverse = &t.Scales32[0]; return w.Inverse }},
		{FP8Tensor, With{Amax: &given}, func(w *With, t *Tensor) *float32 { w.Amax = &t.Scales32[0]; return w.Amax }},
		{NVFP4, With{Inverse: &given}, func(w *With, t *Tensor) *float32 { w.Inverse = &t.Global; return w.Inverse }},
		{NVFP4, With{Inverse: &given}, func(w *With, t *Tensor) *float32 { w.Inverse = &t.Amax; return w.Inverse }},
		{NVFP4, With{Amax: &given}, func(w *With, t *Tensor) *float32 { w.Amax = &t.Global; return w.Amax }},
		{NVFP4, With{Amax: &given}, func(w *With, t *Tensor) *float32 { w.Amax = &t.Amax; return w.Amax }},
	} {
		q := Quantizer{Format: v.format}
		want := must(t)(q.Rowwise(x, v.with))
		with := With{Into: newTensor(v.format, Rowwise, x.Rows, x.Cols)}
		*v.point(&with, with.Into) = given
		sameTensor(t, must(t)(q.Rowwise(x, with)), want)
	}
}

func TestDirection(t *testing.T) {
	for d, want := range []string{"rowwise", "columnwise", "Direction(2)"} {
		if got := Direction(d).String(); got != want {
			t.Errorf("direction %d is called %q", d, got)
		}
	}
}
