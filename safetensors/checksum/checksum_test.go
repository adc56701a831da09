package checksum

import (
	"hash/crc64"
	"math/rand/v2"
	"testing"
)

// TestSum checks that parts in any order, in any number of sums, give the checksum of the
// whole, as hash/crc64 computes it.
func TestSum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := crc64.MakeTable(polynomial)
	for size := range 300 {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32() & -(random.Uint32() & 1)) // zeros among them
		}
		want := crc64.Checksum(data, table)
		if got := Of(data); got != want {
			t.Fatalf("%d bytes: %x, want %x", size, got, want)
		}
		type part struct{ from, to int }
		var parts []part
		for from := 0; from < size; {
			to := min(size, from+1+random.IntN(40))
			parts = append(parts, part{from, to})
			from = to
		}
		if size%2 == 1 {
			random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
		a, b := New(int64(size)), New(int64(size))
		for i, p := range parts {
			s := a
			if i%3 == 0 {
				s = b
			}
			s.Add(data[p.from:p.to], int64(p.from))
		}
		if got := a.Value() ^ b.Value(); got != want {
			t.Fatalf("%d bytes in %d parts: %x, want %x", size, len(parts), got, want)
		}
	}
	long := make([]byte, 1<<20)
	long[5] = 1
	s := New(int64(len(long)))
	s.Add(long[:6], 0)
	s.Add(long[6:], 6)
	if got, want := s.Value(), crc64.Checksum(long, table); got != want {
		t.Errorf("a long part: %x, want %x", got, want)
	}
}

func BenchmarkSum(b *testing.B) {
	for name, size := range map[string]int{"128K": 128 << 10, "1M": 1 << 20, "1K": 1 << 10} {
		b.Run(name, func(b *testing.B) {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(i)
			}
			b.SetBytes(int64(size))
			s := New(1 << 40)
			for i := range b.N {
				s.Add(data, int64(i*3*size))
			}
		})
	}
}
