package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestTypedArithmetic: under the scale of a whole tensor the quotients of a BF16 source
// are BF16, in both directions; those of a float32 source are not.
func TestTypedArithmetic(t *testing.T) {
	const rows, cols = 130, 257
	q, untyped := Quantizer{Format: FP8Tensor, Arithmetic: DecodeFirstTyped}, Quantizer{Format: FP8Tensor, Arithmetic: DecodeFirst}
	random := rand.New(rand.NewPCG(3, 5))
	raw, wide := make([]byte, 2*rows*cols), tensor.New(rows, cols)
	for i := range wide.Data {
		bits := math.Float32bits(float32(random.NormFloat64())) &^ 0xffff
		wide.Data[i] = math.Float32frombits(bits)
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(bits>>16))
	}
	x := tensor.OfBF16(rows, cols, raw)
	for d, quantize := range map[Direction]func(tensor.BF16, With) (*Tensor, error){Rowwise: q.RowwiseBF16, Columnwise: q.ColumnwiseBF16} {
		want, err := q.ReferenceBF16(x, d, With{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := quantize(x, With{})
		if err != nil || !same(got, want) {
			t.Errorf("%s: BF16 differs from its reference (%v)", d, err)
		}
		other, err := untyped.Reference(wide, d, With{})
		if err != nil || same(got, other) {
			t.Errorf("%s: quotients are not rounded to BF16 (%v)", d, err)
		}
		for i, c := range got.Codes {
			decode := got.Scales32[0]
			v := got.Format.Element.Encode(toBF16(valueAt(wide, d, got, i) / decode))
			if byte(v) != c {
				t.Fatalf("%s: code %d is %02x, want %02x", d, i, c, v)
			}
		}
	}
	got, err := q.Rowwise(wide, With{})
	if err != nil {
		t.Fatal(err)
	}
	if want, err := untyped.Rowwise(wide, With{}); err != nil || string(got.Codes) != string(want.Codes) {
		t.Errorf("a float32 source differs from DecodeFirst (%v)", err)
	}
}

// valueAt returns the element of code i.
func valueAt(x tensor.Dense, d Direction, q *Tensor, i int) float32 {
	line, position := i/q.RowBytes(), i%q.RowBytes()
	if d == Columnwise {
		line, position = position, line
	}
	if line >= x.Rows || position >= x.Cols {
		return 0
	}
	return x.At(line, position)
}
