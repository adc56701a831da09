package format_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestJoin compares Join and Split with bytes typed by hand: the first code is in the lowest
// bits.
func TestJoin(t *testing.T) {
	for _, tc := range []struct {
		name   string
		format *format.Scalar
		codes  []byte
		stream []byte
	}{
		{"nibbles", format.E2M1, []byte{0x1, 0x2, 0xf, 0x0, 0x7, 0x8}, []byte{0x21, 0x0f, 0x87}},
		{"six-first", format.E3M2, []byte{0x3f, 0, 0, 0}, []byte{0x3f, 0x00, 0x00}},
		{"six-second", format.E3M2, []byte{0, 0x3f, 0, 0}, []byte{0xc0, 0x0f, 0x00}},
		{"six-third", format.E2M3, []byte{0, 0, 0x3f, 0}, []byte{0x00, 0xf0, 0x03}},
		{"six-fourth", format.E2M3, []byte{0, 0, 0, 0x3f}, []byte{0x00, 0x00, 0xfc}},
		{"six-mixed", format.E2M3, []byte{0x01, 0x02, 0x03, 0x04, 0x15, 0x2a, 0x3c, 0x0f}, []byte{0x81, 0x30, 0x10, 0x95, 0xca, 0x3f}},
		{"eight", format.E4M3, []byte{0x80, 0x7f, 0x01}, []byte{0x80, 0x7f, 0x01}},
		{"seven", format.UE4M3, []byte{0x7f, 0x00}, []byte{0x7f, 0x00}},
		{"none", format.E2M1, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, ok := tc.format.StoredBytes(len(tc.codes))
			if n != len(tc.stream) || !ok {
				t.Fatalf("StoredBytes: got %d, %v, want %d, true", n, ok, len(tc.stream))
			}
			stream := make([]byte, n)
			tc.format.Join(stream, tc.codes)
			if !bytes.Equal(stream, tc.stream) {
				t.Errorf("Join of %x: got %x, want %x", tc.codes, stream, tc.stream)
			}
			codes := make([]byte, len(tc.codes))
			tc.format.Split(codes, tc.stream)
			if !bytes.Equal(codes, tc.codes) {
				t.Errorf("Split of %x: got %x, want %x", tc.stream, codes, tc.codes)
			}
		})
	}
}

// TestJoinSplit checks that Split inverts Join, and that bits above the codes do not matter.
func TestJoinSplit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	eachSpec(t, 8, func(t *testing.T, s *spec) {
		codes := make([]byte, 64)
		want := make([]byte, len(codes))
		for i := range codes {
			want[i] = byte(rnd.Uint32()) & (1<<s.bits - 1)
			codes[i] = want[i]
			if s.bits < 7 {
				codes[i] |= byte(rnd.Uint32()) << s.bits
			}
		}
		n, _ := s.format.StoredBytes(len(codes))
		stream := make([]byte, n)
		s.format.Join(stream, codes)
		got := make([]byte, len(codes))
		s.format.Split(got, stream)
		if !bytes.Equal(got, want) {
			t.Errorf("round trip of %x: got %x", want, got)
		}
	})
}

func TestStoredBytes(t *testing.T) {
	for _, tc := range []struct {
		format *format.Scalar
		n      int
		bytes  int
		ok     bool
	}{
		{format.E2M1, 0, 0, true}, {format.E2M1, 1, 0, false}, {format.E2M1, 2, 1, true}, {format.E2M1, 3, 1, false},
		{format.E3M2, 1, 0, false}, {format.E3M2, 2, 1, false}, {format.E3M2, 3, 2, false}, {format.E3M2, 4, 3, true},
		{format.E3M2, 32, 24, true},
		{format.E4M3, 3, 3, true}, {format.UE4M3, 3, 3, true}, {format.BF16, 3, 6, true}, {format.F32, 3, 12, true},
	} {
		if n, ok := tc.format.StoredBytes(tc.n); n != tc.bytes || ok != tc.ok {
			t.Errorf("StoredBytes of %d codes of %s: got %d, %v, want %d, %v", tc.n, tc.format, n, ok, tc.bytes, tc.ok)
		}
	}
}
