package memory

import "testing"

// TestMeet compares Meet with a check of every byte, for all ranges of a small memory.
func TestMeet(t *testing.T) {
	const first, size = 8, 48
	data := make([]byte, size)
	for _, r := range []Rows{
		{data[first:], 3, 4, 8}, {data[first:], 3, 8, 8}, {data[first:], 1, 5, 0}, {data[first:], 1, 5, 100},
		{data[first:], 0, 4, 8}, {data[first:], 3, 0, 8}, All(data[first : first+5]), All(nil),
	} {
		in := [size]bool{}
		for i := range r.N {
			for j := range r.Bytes {
				in[first+i*r.Next+j] = true
			}
		}
		for from := range size {
			want := false
			for to := from; to <= size; to++ {
				if got := r.Meet(data[from:to]); got != want {
					t.Errorf("rows of %d bytes, %d apart, from byte %d: Meet of bytes %d to %d: got %v", r.Bytes, r.Next, first, from, to, got)
				}
				want = want || to < size && in[to]
			}
		}
	}
}

func TestBytes(t *testing.T) {
	x := []float32{1, -2}
	b := Bytes(x)
	if len(b) != 8 {
		t.Errorf("Bytes of %d numbers: got %d bytes", len(x), len(b))
	}
	if len(Bytes[float32](nil)) != 0 {
		t.Error("Bytes of nil: got bytes")
	}
	clear(b)
	if x[0] != 0 || x[1] != 0 {
		t.Error("Bytes does not share the slice's memory")
	}
}
