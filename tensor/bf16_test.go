package tensor_test

import (
	"bytes"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

func TestBF16(t *testing.T) {
	raw := []byte{0x80, 0x3f, 0x00, 0xc0, 1, 2, 0x00, 0x3f, 0x80, 0xff, 3, 4}
	b := tensor.BF16{Rows: 2, Cols: 2, Stride: 3, Data: raw}
	if got := b.Row(1); !bytes.Equal(got, raw[6:10]) || cap(got) != 4 {
		t.Errorf("row 1: got % x with capacity %d", got, cap(got))
	}
	d := b.Dense()
	if d.Rows != 2 || d.Cols != 2 || d.At(0, 0) != 1 || d.At(0, 1) != -2 || d.At(1, 0) != 0.5 {
		t.Errorf("Dense: got %v", d)
	}
	if w := tensor.OfBF16(2, 3, raw); w.Stride != 3 || w.Dense().At(1, 0) != 0.5 {
		t.Errorf("OfBF16: got %v", w)
	}
	defer func() {
		if recover() == nil {
			t.Error("12 bytes as 2×2: got no panic")
		}
	}()
	tensor.OfBF16(2, 2, raw)
}
