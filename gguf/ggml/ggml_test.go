package ggml

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
)

// TestStructs compares each struct with its definition, element by element, for every kernel. The
// kernels read and write only the structs.
func TestStructs(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) { testStructs(t) })
}

func testStructs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range Structs() {
		for _, n := range []int{0, 1, 2, 7} {
			element := format.E2M1
			if s.CodeBits == 8 {
				element = format.INT8
			}
			each := make([]byte, n*s.Width())
			for i := range each {
				each[i] = byte(random.Uint32()) & (1<<s.CodeBits - 1)
			}
			codes := guard.Bytes(t, len(each)*s.CodeBits/8, guard.Side(n%2))
			element.Join(codes, each)
			scales := guard.Bytes(t, n*s.Blocks*s.ScaleBytes, guard.Side(n%2))
			for i := range scales {
				scales[i] = byte(random.Uint32())
			}
			got := guard.Bytes(t, n*s.Bytes(), guard.Side(n%2))
			s.Interleave(got, codes, scales)
			if want := s.defined(each, scales); !bytes.Equal(got, want) {
				t.Errorf("%s ×%d: got %x, want %x", s, n, got, want)
			}
			codesBack, scalesBack := make([]byte, len(codes)), make([]byte, len(scales))
			s.Deinterleave(codesBack, scalesBack, got)
			if !bytes.Equal(codesBack, codes) || !bytes.Equal(scalesBack, scales) {
				t.Errorf("%s ×%d: round trip differs", s, n)
			}
		}
	}
}

// defined is Interleave by ggml's dequantization loops: byte j of a block holds elements j and
// j + half.
func (s Struct) defined(each, scales []byte) (out []byte) {
	for i := 0; i < len(each)/s.Elements; i += s.Blocks {
		out = append(out, scales[i*s.ScaleBytes:(i+s.Blocks)*s.ScaleBytes]...)
		for b := range s.Blocks {
			block := each[(i+b)*s.Elements:][:s.Elements]
			if s.CodeBits == 8 {
				out = append(out, block...)
				continue
			}
			half := s.Elements / 2
			for j := range half {
				out = append(out, block[j]|block[j+half]<<4)
			}
		}
	}
	return out
}

// TestStructSizes checks the static_asserts of ggml-common.h.
func TestStructSizes(t *testing.T) {
	for s, want := range map[Struct][2]int{BlockMXFP4: {17, 32}, BlockNVFP4: {36, 64}, BlockQ80: {34, 32}} {
		if s.Bytes() != want[0] || s.Width() != want[1] {
			t.Errorf("%s: got %d bytes and %d elements, want %d and %d", s, s.Bytes(), s.Width(), want[0], want[1])
		}
	}
}

func TestStructLengths(t *testing.T) {
	for _, lengths := range [][3]int{{17, 16, 2}, {17, 15, 1}, {16, 16, 1}, {34, 16, 1}} {
		t.Run(fmt.Sprint(lengths), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			BlockMXFP4.Interleave(make([]byte, lengths[0]), make([]byte, lengths[1]), make([]byte, lengths[2]))
		})
	}
}

func BenchmarkInterleave(b *testing.B) { benchmark(b, Struct.Interleave) }

func BenchmarkDeinterleave(b *testing.B) {
	benchmark(b, func(s Struct, src, codes, scales []byte) { s.Deinterleave(codes, scales, src) })
}

func benchmark(b *testing.B, f func(s Struct, structs, codes, scales []byte)) {
	for _, s := range Structs() {
		b.Run("struct="+s.Name, func(b *testing.B) {
			const n = 1 << 12
			structs, codes, scales := make([]byte, n*s.Bytes()), make([]byte, n*s.Width()*s.CodeBits/8), make([]byte, n*s.Blocks*s.ScaleBytes)
			b.SetBytes(int64(len(structs)))
			for b.Loop() {
				f(s, structs, codes, scales)
			}
		})
	}
}
