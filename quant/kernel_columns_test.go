package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/microscale-go/microscale/format"
)

func testTransposeRow(k *kernel[func(dst, src []float32, dstStride, srcStride, n int)], f *fences, r *rand.Rand) {
	for _, n := range []int{1, 2, 3} {
		for _, gap := range []int{0, 5} {
			rows, cols := n*transposeSize, transposeSize
			srcStride, dstStride := cols+gap, rows+gap
			src := ordinary((rows-1)*srcStride+cols, r)
			want := ordinary((cols-1)*dstStride+rows, r)
			dst := fenced(f, want)
			k.run(dst, fenced(f, src), dstStride, srcStride, n)
			for i := range rows {
				for j := range cols {
					want[j*dstStride+i] = src[i*srcStride+j]
				}
			}
			requireSame(f, fmt.Sprintf("%d rows, gap %d", rows, gap), dst, want)
		}
	}
}

// testCodesRow: tiles beside each other, in rows that have gaps between them or none.
func testCodesRow(k *kernel[func(dst, src []byte, n, dstStride, srcStride int, stream bool)], f *fences, r *rand.Rand) {
	size := k.bits / 8
	side := cacheLine / size
	for _, n := range []int{1, 2, 3} {
		for _, gap := range []int{0, 5} {
			cols := n * side
			srcStride, dstStride := size*(cols+gap), size*(side+gap)
			src, dst := f.bytes((side-1)*srcStride+size*cols), f.bytes((cols-1)*dstStride+size*side)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			want := slices.Clone(dst)
			transposeTiles(want, src, side, cols, dstStride, srcStride, size)
			k.run(dst, src, n, dstStride, srcStride, gap == 0 && isAligned(dst))
			fence()
			requireBytes(f, "transposed codes", dst, want)
		}
	}
}

// testTransposeFourRow: rows and columns that have gaps between them or none.
func testTransposeFourRow(k *kernel[func(dst, src []byte, n, dstStride, srcStride int)], f *fences, r *rand.Rand) {
	const rows = 4
	for _, n := range []int{1, 2, 3} {
		for _, gap := range []int{0, 5} {
			cols := n * fourUnit
			srcStride, dstStride := cols+gap, rows+gap
			src, dst := f.bytes((rows-1)*srcStride+cols), f.bytes((cols-1)*dstStride+rows)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			want := slices.Clone(dst)
			transposeScales(want, src, srcStride, cols, rows, 1, dstStride)
			k.run(dst, src, n, dstStride, srcStride)
			requireBytes(f, "transposed rows", dst, want)
		}
	}
}

// testMaximaRow: maxima of columns that are raised, of rows that have gaps between them or none.
func testMaximaRow(k *kernel[func(maxima []uint32, src []byte, rows, srcStride, ahead int)], f *fences, r *rand.Rand) {
	for _, n := range []int{1, 2, 3} {
		for _, rows := range []int{1, 3, 4, 9} {
			width := n * tileSide
			stride := width + n%2*32
			values := ordinary((rows-1)*stride+width, r)
			memory, size := floatBytes32(values), 4
			if k.bf16 {
				memory, size = bf16Bytes(values), 2
			}
			want := make([]uint32, width)
			for j := range want {
				want[j] = math.Float32bits(r.Float32())
			}
			got := fenced(f, want)
			k.run(got, fenced(f, memory), rows, stride*size, 8*stride*size)
			for i, v := range values {
				if j := i % stride; j < width {
					want[j] = max(want[j], math.Float32bits(v)&absMask)
				}
			}
			if !slices.Equal(got, want) {
				f.Fatalf("the maxima of %d columns are %x, want %x", width, got, want)
			}
		}
	}
}

// testColumnRow: the codes of adjacent tiles, by factors of every
// number of rows, to rows that have gaps between them.
func testColumnRow(k *kernel[func(columnPart, *encodeConstants)], f *fences, r *rand.Rand) {
	for _, bits := range []int{8, 6, 4} {
		for _, element := range append(signedElements(bits), format.INT8) {
			if element.StoredBits() != bits || element.Integer != k.integer {
				continue
			}
			for i, n := range []int{1, 2, 3} {
				for _, blockRows := range []int{1, 2, 4} {
					testColumns(k, f, element, n, blockRows, i%2*32, false, r)
					testColumns(k, f, element, n, blockRows, i%2*32, true, r)
				}
			}
		}
	}
}

func testColumns(k *kernel[func(columnPart, *encodeConstants)], f *fences, element *format.Scalar, n, blockRows, gap int, powers bool,
	r *rand.Rand) {
	width := n * tileSide
	stride := width + gap
	values := ordinary((tileSide-1)*stride+width, r)
	memory, size := floatBytes32(values), 4
	if k.bf16 {
		memory, size = bf16Bytes(values), 2
	}
	factors := positive(4/blockRows*width, r)
	for i := range factors {
		if powers {
			rows := values[i/width*16*blockRows*stride+i%width:]
			factors[i] = powerFactor(rows, 16*blockRows, stride, element, r)
		}
	}
	c := newEncodeConstants(element)
	bits := element.StoredBits()
	codeStride := tileSide*bits/8 + gap
	codes, src := f.bytes((width-1)*codeStride+tileSide*bits/8), fenced(f, memory)
	k.run(columnPart{
		codes: codes, src: src, factors: fenced(f, factors), n: n, blockRows: blockRows,
		codeStride: codeStride, srcStride: stride * size, factorStride: 4 * width,
		bits: bits, stream: bits == 8 && gap == 0 && isAligned(codes), powers: powers,
	}, &c)
	fence()
	plain, want := make([]byte, tileSide), make([]byte, tileSide*bits/8)
	for j := range width {
		for i := range plain {
			v := values[i*stride+j]
			element.EncodeSlice(plain[i:i+1], []float32{float32(v * factors[i/(16*blockRows)*width+j])})
		}
		element.Join(want, plain)
		requireBytes(f, fmt.Sprintf("%s, %d tiles, factors for %d rows, column %d", element, n, 16*blockRows, j),
			codes[j*codeStride:][:len(want)], want)
	}
}

// powerFactor returns a power of two whose products with each stride-th of n values are less than
// twice the largest element, often by little.
func powerFactor(values []float32, n, stride int, element *format.Scalar, r *rand.Rand) float32 {
	var amax float64
	for i := range n {
		amax = max(amax, math.Abs(float64(values[i*stride])))
	}
	if amax == 0 {
		return 1
	}
	_, exponent := math.Frexp(2 * float64(element.Max()) / amax)
	f := math.Ldexp(1, exponent-1-r.IntN(3))
	if f*amax >= 2*float64(element.Max()) {
		f /= 2
	}
	return float32(f)
}
