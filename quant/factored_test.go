package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/microscale-go/microscale/format"
)

// testFactorRow: codes of tiles beside each other, of all elements, and what their factors
// come from.
func testFactorRow(k *factorKernel, f *fences, r *rand.Rand) {
	for _, element := range signedElements(8) {
		q := Quantizer{Format: FP8Row}
		q.Format.Element = element
		for i, rows := range []int{1, 16, 40, tileSide} {
			testFactoredTiles(k, f, q, rows, 1+i%3, i%2*2*tileSide, r)
		}
		for _, q.PowerOfTwo = range []bool{false, true} {
			testFactors(k, f, q, r)
		}
	}
	for i, rows := range []int{factorGroup, 3 * factorGroup} {
		testMaxima(k, f, rows, factorSide+i*16, r)
	}
}

// sourceBytes returns the memory of values as the kernel takes them, whose values it
// rounds to those.
func (k *factorKernel) sourceBytes(values []float32) []byte {
	if k.raw {
		return bf16Bytes(values)
	}
	return floatBytes32(values)
}

func testFactoredTiles(k *factorKernel, f *fences, q Quantizer, rows, n, gap int, r *rand.Rand) {
	element, c := q.Format.Element, q.bytesConstants()
	whole, width := ceilDiv(rows, factorGroup)*factorGroup, n*tileSide
	values := ordinary((whole-1)*(width+gap)+width, r)
	memory := k.sourceBytes(values)
	size := len(memory) / len(values)
	ofRow, ofColumn := positive(rows, r), positive(width, r)
	name := fmt.Sprintf("%s, %d tiles of %d rows", element, n, rows)
	for _, stream := range []bool{false, rows == tileSide} {
		for _, bad := range []float32{0, float32(math.Inf(-1)), float32(math.NaN())} {
			src, flag := fenced(f, memory), uint32(0)
			if bad != 0 {
				at := r.IntN(width)
				copy(src[at*size:], k.sourceBytes([]float32{bad}))
				flag = flagged
			}
			place := func(lines, stored int) tilePlace {
				return tilePlace{codes: f.bytes((lines-1)*(stored+gap) + stored), codeStride: stored + gap}
			}
			t := factoredTiles{
				tiles:         tiles{byColumn: place(width, rows), src: src, srcStride: (width + gap) * size, n: n, rows: rows},
				columnFactors: fenced(f, ofColumn), stream: stream,
			}
			t.stream = stream && isAligned(t.byColumn.codes)
			got := []tilePlace{t.byColumn}
			flags, square := []uint32{k.alone(t, &c)}, tilePlace{}
			if rows == tileSide {
				t.byRow, t.byColumn, t.rowFactors = place(rows, width), place(width, rows), fenced(f, ofRow)
				t.stream = stream && isAligned(t.byColumn.codes) && isAligned(t.byRow.codes)
				got, flags = append(got, t.byColumn), append(flags, k.both(t, &c))
				same := t
				same.byRow, same.byColumn = place(rows, width), place(width, rows)
				got, square, flags = append(got, same.byColumn), same.byRow, append(flags, k.square(same, &c))
			}
			fence()
			for _, g := range flags {
				if g != flag {
					f.Fatalf("%s: the flag is %#x, want %#x", name, g, flag)
				}
			}
			if bad != 0 {
				continue
			}
			code := func(i, j int, factor float32) []byte {
				b := make([]byte, 1)
				element.EncodeSlice(b, []float32{values[i*(width+gap)+j] * factor})
				return b
			}
			for i := range rows {
				for j := range width {
					for _, p := range got {
						requireBytes(f, name+", down columns", p.codes[j*p.codeStride+i:][:1], code(i, j, ofColumn[j]))
					}
					if rows == tileSide {
						requireBytes(f, name+", along rows by factors of columns", square.codes[i*square.codeStride+j:][:1], code(i, j, ofColumn[j]))
						requireBytes(f, name+", along rows", t.byRow.codes[i*t.byRow.codeStride+j:][:1], code(i, j, ofRow[i]))
					}
				}
			}
		}
	}
}

func testFactors(k *factorKernel, f *fences, q Quantizer, r *rand.Rand) {
	c := q.bytesConstants()
	amaxes := make([]uint32, 3*factorGroup)
	for i := range amaxes {
		amaxes[i] = r.Uint32N(exponentMask) >> (i % 24)
	}
	amaxes[0], amaxes[1] = 0, exponentMask-1
	factors, scales := asFloats(fenced(f, make([]uint32, len(amaxes)))), asFloats(fenced(f, make([]uint32, len(amaxes))))
	k.factors(factors, scales, fenced(f, amaxes), &c)
	for i, a := range amaxes {
		decode, want := arithmetics[EncodeFirst].fp32(math.Float32frombits(a), q.Format.Element.Max(), q.PowerOfTwo)
		if factors[i] != want.value || scales[i] != decode {
			f.Fatalf("%s: amax %#x has factor %g and scale %g, want %g and %g", q.Format.Element, a, factors[i], scales[i], want.value, decode)
		}
	}
}

func testMaxima(k *factorKernel, f *fences, rows, stride int, r *rand.Rand) {
	values := ordinary((rows-1)*stride+factorSide, r)
	memory := k.sourceBytes(values)
	first := make([]uint32, rows+factorSide)
	for i := range first {
		first[i] = math.Float32bits(values[i]) & absMask
	}
	along, down := fenced(f, first[:rows]), fenced(f, first[rows:])
	wantAlong, wantDown := slices.Clone(along), slices.Clone(down)
	for i := range rows {
		for j := range factorSide {
			a := format.MaxBits(values[i*stride+j : i*stride+j+1])
			wantAlong[i], wantDown[j] = max(wantAlong[i], a), max(wantDown[j], a)
		}
	}
	k.maxima(along, down, fenced(f, memory), stride*len(memory)/len(values))
	if !slices.Equal(along, wantAlong) || !slices.Equal(down, wantDown) {
		f.Fatalf("of %d rows %d apart, maxima along rows are %x and down columns %x, want %x and %x", rows, stride, along, down, wantAlong, wantDown)
	}
}
