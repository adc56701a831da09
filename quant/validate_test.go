package quant

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// entries are the ways to quantize a matrix, in float32 and in BF16, with the copies that
// each makes.
var entries = []struct {
	name          string
	raw, row, col bool
	call          func(x tensor.Dense, raw tensor.BF16, row, col Copy) error
}{
	{"Rowwise", false, true, false, func(x tensor.Dense, _ tensor.BF16, row, _ Copy) error {
		return second(row.Quantizer.Rowwise(x, row.With))
	}},
	{"RowwiseBF16", true, true, false, func(_ tensor.Dense, raw tensor.BF16, row, _ Copy) error {
		return second(row.Quantizer.RowwiseBF16(raw, row.With))
	}},
	{"Columnwise", false, false, true, func(x tensor.Dense, _ tensor.BF16, _, col Copy) error {
		return second(col.Quantizer.Columnwise(x, col.With))
	}},
	{"ColumnwiseBF16", true, false, true, func(_ tensor.Dense, raw tensor.BF16, _, col Copy) error {
		return second(col.Quantizer.ColumnwiseBF16(raw, col.With))
	}},
	{"RowwiseColumnwise", false, true, true, func(x tensor.Dense, _ tensor.BF16, row, col Copy) error {
		_, _, err := RowwiseColumnwise(x, row, col)
		return err
	}},
	{"RowwiseColumnwise of BF16", true, true, true, func(_ tensor.Dense, raw tensor.BF16, row, col Copy) error {
		_, _, err := RowwiseColumnwise(raw, row, col)
		return err
	}},
}

// TestBadDirection checks that methods with a Direction return an error for an unknown one.
func TestBadDirection(t *testing.T) {
	q, x := Quantizer{Format: MXFP8}, tensor.New(2, 32)
	const want = "got direction 2, want rowwise or columnwise"
	if _, err := q.Reference(x, 2, With{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Reference: got %v, want %q in it", err, want)
	}
	if _, err := q.Amax(x, 2, 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Amax: got %v, want %q in it", err, want)
	}
}

// A penned slice lies in memory that is otherwise full of one value, and is full of it, too.
type penned[T byte | float32] struct{ memory []T }

const penValue = 77

func pen[T byte | float32](n int) penned[T] {
	return penned[T]{slices.Repeat([]T{penValue}, n+2*tileSide*tileSide)}
}

// slice returns n elements from the middle.
func (p penned[T]) slice(n int) []T { return p.memory[tileSide*tileSide:][:n] }

func (p penned[T]) untouched() bool {
	return !slices.ContainsFunc(p.memory, func(v T) bool { return v != penValue })
}

// TestBadInto checks that a destination whose codes or scales do not match its shape is an error
// with both numbers, and that it stays unchanged.
func TestBadInto(t *testing.T) {
	const rows, cols = 130, 150 // whole tiles, and parts
	x, raw := tensor.New(rows, cols), tensor.OfBF16(rows, cols, make([]byte, 2*rows*cols))
	scaled, byteScales := Format.Scaled, Format.ByteScales
	fp32Scales := func(f Format) bool { return f.Scaled() && !f.ByteScales() }
	for _, tc := range []struct {
		name   string
		of     func(Format) bool // formats that it concerns; nil: all
		spoil  func(*Tensor)
		reason func(want *Tensor) string
	}{
		{"codes that lack one", nil, func(u *Tensor) { u.Codes = u.Codes[:len(u.Codes)-1] },
			func(want *Tensor) string {
				return fmt.Sprintf("of shape [130 150]: got %d bytes of codes, want %d", len(want.Codes)-1, len(want.Codes))
			}},
		{"no codes", nil, func(u *Tensor) { u.Codes = nil },
			func(want *Tensor) string { return fmt.Sprintf("got 0 bytes of codes, want %d", len(want.Codes)) }},
		{"a code too many", nil, func(u *Tensor) { u.Codes = u.Codes[:len(u.Codes)+1] },
			func(want *Tensor) string { return fmt.Sprintf("got %d bytes of codes", len(want.Codes)+1) }},
		{"scales that lack one", byteScales, func(u *Tensor) { u.Scales = u.Scales[:len(u.Scales)-1] },
			func(want *Tensor) string {
				r, c := want.ScaleShape()
				return fmt.Sprintf("of shape [130 150]: got %d scales, want %d×%d", len(want.Scales)-1, r, c)
			}},
		{"FP32 scales that lack one", fp32Scales, func(u *Tensor) { u.Scales32 = u.Scales32[:len(u.Scales32)-1] },
			func(want *Tensor) string {
				r, c := want.ScaleShape()
				return fmt.Sprintf("of shape [130 150]: got %d FP32 scales, want %d×%d", len(want.Scales32)-1, r, c)
			}},
		{"no scales", scaled, func(u *Tensor) { u.Scales, u.Scales32 = nil, nil }, saying("scales, want")},
		{"scales of the other kind", byteScales, func(u *Tensor) { u.Scales, u.Scales32 = nil, make([]float32, len(u.Scales)) },
			saying("got 0 scales, want")},
		{"scales of both kinds", byteScales, func(u *Tensor) { u.Scales32 = make([]float32, len(u.Scales)) },
			saying("got FP32 scales, want none")},
		{"scales of one byte", fp32Scales, func(u *Tensor) { u.Scales, u.Scales32 = make([]byte, len(u.Scales32)), nil },
			saying("got 0 FP32 scales, want")},
		{"scales where there are none", func(f Format) bool { return !f.Scaled() }, func(u *Tensor) { u.Scales = make([]byte, 1) },
			saying("got 1 scales, want 0×0")},
		{"no shape", nil, func(u *Tensor) { u.Shape = nil }, saying("got no shape")},
		{"negative dimensions", nil, func(u *Tensor) { u.Shape = []int{-2, -65, 150} }, saying("got shape [-2 -65 150]")},
		{"a shape that wraps around", nil, func(u *Tensor) { u.Shape = []int{math.MaxInt/2 + 1, 4, 150} }, saying("got shape")},
		{"an got direction", nil, func(u *Tensor) { u.Direction = 2 }, saying("got direction 2")},
		{"no format", nil, func(u *Tensor) { u.Format = Format{} }, saying("has no element format")},
	} {
		for _, f := range Formats() {
			if tc.of != nil && !tc.of(f) {
				continue
			}
			for _, e := range entries {
				for _, d := range []Direction{Rowwise, Columnwise} {
					if d == Rowwise && !e.row || d == Columnwise && !e.col {
						continue
					}
					want := newTensor(f, d, rows, cols)
					codes, scales, scales32 := pen[byte](len(want.Codes)), pen[byte](len(want.Scales)), pen[float32](len(want.Scales32))
					into := *want
					into.Codes = codes.slice(len(want.Codes))
					if want.Scales != nil {
						into.Scales = scales.slice(len(want.Scales))
					}
					if want.Scales32 != nil {
						into.Scales32 = scales32.slice(len(want.Scales32))
					}
					tc.spoil(&into)
					row, col := Copy{Quantizer: Quantizer{Format: f}}, Copy{Quantizer: Quantizer{Format: f}}
					if d == Rowwise {
						row.With.Into = &into
					} else {
						col.With.Into = &into
					}
					err := e.call(x, raw, row, col)
					if reason := tc.reason(want); err == nil || !strings.Contains(err.Error(), reason) {
						t.Errorf("%s of %s into a %s tensor with %s gives the error %v, want %q in it", e.name, f, d, tc.name, err, reason)
					}
					if !codes.untouched() || !scales.untouched() || !scales32.untouched() {
						t.Errorf("%s of %s wrote to a %s tensor with %s", e.name, f, d, tc.name)
					}
				}
			}
		}
	}
}

func saying(reason string) func(*Tensor) string { return func(*Tensor) string { return reason } }

// TestBadSource checks that a matrix that its data does not hold is an error, even if memory
// follows the data; Amax panics with it.
func TestBadSource(t *testing.T) {
	for _, tc := range []struct {
		rows, cols, stride, elements int
		want                         string
	}{
		{-1, 64, 64, 4096, "invalid shape -1×64"},
		{64, -1, 64, 4096, "invalid shape 64×-1"},
		{-64, -64, -64, 4096, "invalid shape -64×-64"},
		{64, 64, 63, 4096, "64×64 matrix: the stride"},
		{64, 64, 0, 4096, "64×64 matrix: the stride"},
		{64, 64, 64, 4095, "got 4095 elements, too few for a 64×64 matrix"},
		{64, 64, 65, 4096, "got 4096 elements, too few for a 64×64 matrix with stride 65"},
		{64, 64, 64, 0, "got 0 elements, too few"},
		{1, 64, 64, 63, "got 63 elements, too few"},
		{64, 64, 1 << 62, 4096, "too few"},
		{1 << 32, 1 << 32, 1 << 32, 4096, "too few"},
		{math.MaxInt, 64, 64, 4096, "too few"},
		{1, math.MaxInt, math.MaxInt, 4096, "too few"},
	} {
		x := tensor.Dense{Rows: tc.rows, Cols: tc.cols, Stride: tc.stride, Data: make([]float32, 1<<14)[:tc.elements]}
		raw := tensor.BF16{Rows: tc.rows, Cols: tc.cols, Stride: tc.stride, Data: make([]byte, 1<<15)[:2*tc.elements+tc.elements%2]}
		for _, f := range []Format{MXFP8, NVFP4, FP8Row, FP8Block, BF16} {
			for _, e := range entries {
				c := Copy{Quantizer: Quantizer{Format: f}}
				if err := e.call(x, raw, c, c); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s of %s gives the error %v, want %q in it", e.name, f, err, tc.want)
				}
			}
		}
		for name, amax := range map[string]func(){
			"Amax":     func() { Amax(x, 1) },
			"AmaxBF16": func() { Amax(raw, 1) },
		} {
			func() {
				defer func() {
					if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("%s panics with %v, want %q in it", name, err, tc.want)
					}
				}()
				amax()
			}()
		}
	}
	c := Copy{Quantizer: Quantizer{Format: MXFP8}}
	for _, x := range []tensor.Dense{{}, {Rows: 3}, {Cols: 3, Stride: 5}, {Rows: 2, Cols: 3, Stride: 5, Data: make([]float32, 8)}} {
		raw := tensor.BF16{Rows: x.Rows, Cols: x.Cols, Stride: x.Stride, Data: make([]byte, 2*len(x.Data))}
		for _, e := range entries {
			if err := e.call(x, raw, c, c); err != nil {
				t.Errorf("%s of %d×%d: %v", e.name, x.Rows, x.Cols, err)
			}
		}
	}
}

// TestChecksAllocateNothing checks that validating a matrix and a destination does not allocate.
func TestChecksAllocateNothing(t *testing.T) {
	x := tensor.New(130, 150)
	for _, f := range Formats() {
		for _, d := range []Direction{Rowwise, Columnwise} {
			with := With{Into: newTensor(f, d, x.Rows, x.Cols)}
			n := testing.AllocsPerRun(10, func() {
				if _, err := sourceOf(x); err != nil {
					t.Fatal(err)
				}
				if err := with.checkInto(denseSource(x), f, d); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("format=%s: %v allocations for a %s tensor that fits", f, n, d)
			}
		}
	}
}
