package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// testFusedRow: whole groups, of ordinary blocks and of all kinds.
func testFusedRow(k *fusedKernel, f *fences, r *rand.Rand) {
	supported := 0
	for _, q := range kernelQuantizers() {
		if !k.supports.holds(&q) {
			continue
		}
		supported++
		for _, groups := range []int{1, 2, 3} {
			for _, hard := range []bool{false, true} {
				values := ordinary(groups*k.group*q.Format.Block.Cols, r)
				if hard {
					edgeBlocks(values, r, false)
				}
				var x source
				memory := elementBytes(values, k.bf16)
				if k.bf16 {
					x = bf16Source(tensor.OfBF16(1, len(values), memory))
				} else {
					x = denseSource(tensor.Of(1, len(values), values))
				}
				amax := amaxBits(values)
				global := math.Float32frombits(amax)
				with := With{}
				if q.Format.Global {
					with.Amax = &global
				}
				want := must(f)(q.quantize(x, Rowwise, with))
				o := new(output)
				o.prepare(&q, x, Rowwise, with)
				for _, o.stream = range []bool{false, true} {
					wantScales := (&output{t: want}).scaleMemory(0, groups*k.group)
					codes, scales := f.bytes(len(want.Codes)), f.bytes(len(wantScales))
					part := rowGroups{codes: codes, scales: scales, src: fenced(f, memory), groups: groups, rows: 1, ahead: fusedAhead,
						stream: o.streams(codes, 1)}
					if groups > 1 && hard { // as rows of one group
						part.groups, part.rows = 1, groups
					}
					var wantMaxima []byte
					if k.columns && o.stream {
						maxima := make([]float32, part.groups*k.group*q.Format.Block.Cols)
						for j := range maxima {
							maxima[j] = r.Float32()
						}
						part.maxima = fenced(f, elementBytes(maxima, k.bf16))
						for i, v := range values {
							m := &maxima[i%len(maxima)]
							*m = math.Float32frombits(max(math.Float32bits(*m), math.Float32bits(v)&absMask))
						}
						wantMaxima = elementBytes(maxima, k.bf16)
					}
					got := k.begin(o)(part)
					fence()
					name := fmt.Sprintf("%s, %d groups", quantizerName(q), groups)
					if !bytes.Equal(part.maxima, wantMaxima) {
						f.Fatalf("%s: the maxima of columns are %x, want %x", name, part.maxima, wantMaxima)
					}
					if got == flagged && hard {
						continue
					}
					if got != amax {
						f.Fatalf("%s: the amax has bits %#x, want %#x", name, got, amax)
					}
					requireBytes(f, name+", scales", scales, wantScales)
					requireBytes(f, name+", codes", codes, want.Codes)
				}
			}
		}
	}
	if supported == 0 {
		f.Fatal("the kernel supports no quantizer of kernelQuantizers: add one")
	}
}

// testRowKernel: one row and several, which follow each other or have gaps between them.
func testRowKernel(k *kernel[func(rowPart, *encodeConstants)], f *fences, r *rand.Rand) {
	for _, element := range signedElements(8) {
		for i, shape := range []struct{ rows, blocks, units, gap int }{
			{1, 1, 1, 0}, {1, 1, 2, 0}, {1, 1, 5, 0}, {1, 2, 2, 0}, {1, 3, 1, 0}, {3, 2, 1, 0}, {3, 1, 2, 64}, {2, 3, 1, 192}, {4, 2, 2, 64},
		} {
			extent := shape.units * rowUnit
			width := shape.blocks * extent
			stride := width + shape.gap
			size := (shape.rows-1)*stride + width
			c := newEncodeConstants(element)
			values := ordinary(size, r)
			src := floatBytes32(values)
			if k.bf16 {
				src = bf16Bytes(values)
			}
			factors := positive(shape.rows*shape.blocks, r)
			codes := f.bytes(size)
			want := slices.Clone(codes)
			for at := range size {
				if j := at/stride*shape.blocks + at%stride/extent; at%stride < width {
					element.EncodeSlice(want[at:at+1], []float32{float32(values[at] * factors[j])})
				}
			}
			k.run(rowPart{
				codes: codes, src: fenced(f, src), factors: fenced(f, factors), rows: shape.rows, blocks: shape.blocks, units: shape.units,
				codeStride: stride, srcStride: stride * len(src) / size, factorStride: shape.blocks, stream: i%2 == 1 && isAligned(codes),
			}, &c)
			fence()
			requireBytes(f, fmt.Sprintf("%s, %d rows of %d blocks of %d, %d between them", element, shape.rows, shape.blocks, extent, shape.gap),
				codes, want)
		}
	}
}

// testJoinRow: codes of rows that end anywhere.
func testJoinRow(k *kernel[func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants)], f *fences,
	r *rand.Rand) {
	elements := signedElements(k.bits)
	if len(elements) == 0 {
		f.Fatalf("there is no element format of %d bits", k.bits)
	}
	for _, element := range elements {
		c := newEncodeConstants(element)
		for _, n := range rowLengths {
			x, random := ordinary(n, r), make([]uint32, n)
			factors := positive((n+joinUnit-1)/joinUnit*joinUnit/factorExtent, r)
			scaled, codes := make([]float32, n), make([]byte, n+n%2)
			for i := range x {
				random[i] = r.Uint32()
				scaled[i] = float32(x[i] * factors[i/factorExtent])
			}
			if k.random {
				element.EncodeSliceStochastic(codes, scaled, random, format.Conversion{})
			} else {
				element.EncodeSlice(codes, scaled)
			}
			want := make([]byte, (n*k.bits+7)/8)
			element.Join(want, codes[:len(want)*8/k.bits])
			got := f.bytes(len(want))
			k.run(got, fenced(f, x), fenced(f, random), fenced(f, factors), &c)
			requireBytes(f, fmt.Sprintf("%s, %d elements", element, n), got, want)
		}
	}
}

func testPhiloxRow(k *kernel[func(dst []uint32, first uint64, c *philoxConstants)], f *fences, r *rand.Rand) {
	s := Stream{Seed: r.Uint64(), Step: r.Uint32(), Tensor: r.Uint32() >> 8, Operand: 5}
	c := s.philoxConstants()
	for _, units := range []int{1, 2, 7} {
		for _, first := range []uint64{0, 1<<32 - 3, 1<<62 - 1000} {
			dst := fenced(f, make([]uint32, units*philoxUnit))
			k.run(dst, first, &c)
			for i, got := range dst {
				if want := s.At(first*philoxWords + uint64(i)); got != want {
					f.Fatalf("word %d from counter %d on is %#x, want %#x", i, first, got, want)
				}
			}
		}
	}
}

func testHadamardRow(k *kernel[func(x []float32, signs *[hadamardSize]uint32, nan float32)], f *fences, r *rand.Rand) {
	for _, n := range []int{1, 2, 5} {
		x := ordinary(n*hadamardSize, r)
		edgeBlocks(x[:hadamardSize], r, false)
		x[len(x)-1] = float32(math.NaN())
		got := fenced(f, x)
		k.run(got, &hadamardFlips, hadamardNaN)
		for i := 0; i < len(x); i += hadamardSize {
			Hadamard16(x[i : i+hadamardSize])
		}
		requireSame(f, fmt.Sprintf("%d times %d", n, hadamardSize), got, x)
	}
}

// testEncodeRow tests blocks of whole units, of other extents, and of the whole row.
func testEncodeRow(k *kernel[func(codes []byte, src, factors []float32, extent int, c *encodeConstants)], f *fences, r *rand.Rand) {
	for _, element := range slices.Concat(signedElements(8), signedElements(6), signedElements(4)) {
		c := newEncodeConstants(element)
		for i, n := range rowLengths {
			for _, extent := range []int{n, []int{7, 16, 32, 48, 128}[i%5]} {
				x, factors := ordinary(n, r), positive(ceilDiv(n, extent), r)
				want := make([]byte, n)
				for i, v := range x {
					y := float32(v * factors[i/extent])
					if k.divides {
						y = v / factors[i/extent]
					}
					element.EncodeSlice(want[i:i+1], []float32{y})
				}
				codes := f.bytes(n)
				k.run(codes, fenced(f, x), fenced(f, factors), extent, &c)
				requireBytes(f, fmt.Sprintf("%s, %d elements in blocks of %d", element, n, extent), codes, want)
			}
		}
	}
}

func testSearchRow(k *kernel[searchKernel], f *fences, r *rand.Rand) {
	for _, e := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, MXINT8} {
		q := Quantizer{Format: e, Search: LeastSquares}
		o := &output{q: &q}
		constants, w := o.newScaleSearch().constants, new(worker)
		for _, groups := range []int{1, 2, 5} {
			for _, n := range []int{1, 3, maxCandidates} {
				x, factors, decodes := ordinary(groups*searchUnit, r), positive(n, r), positive(n, r)
				errors := fenced(f, make([]float64, n))
				var weights []float32
				if k.weights {
					weights = fenced(f, positive(len(x), r))
				}
				k.run(errors, fenced(f, x), weights, fenced(f, factors), fenced(f, decodes), n, &constants)
				codes := make([]byte, len(x))
				for i := range n {
					w.encodeReference(o, codes, x, factor{value: factors[i], divide: k.divides}, nil)
					if want := o.squaredError(x, weights, codes, decodes[i]); errors[i] != want {
						f.Fatalf("%s, %d elements: error %d of %d is %v, want %v", e, len(x), i, n, errors[i], want)
					}
				}
			}
		}
	}
}

func testSumRow(k *kernel[sumKernel], f *fences, r *rand.Rand) {
	int4, err := Lookup("int4-g32")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, MXINT8, int4} {
		q := Quantizer{Format: e, Search: LeastSquares}
		constants := (&output{q: &q, with: With{Mean: []float32{}}}).newRowSearch(maxLanes).constants
		for _, shape := range [][2]int{{1, 16}, {3, 16}, {1, 5}, {2, 33}} {
			for _, lanes := range []int{sumLanes, maxLanes} {
				blocks, extent := shape[0], shape[1]
				n, table := blocks*extent, 3+lanes
				b := blockSums{fenced(f, make([]float32, 2*lanes*blocks)), fenced(f, ordinary(n, r)), fenced(f, positive(n, r)),
					fenced(f, ordinary(n, r)), make([]int, blocks), fenced(f, positive(table, r)), fenced(f, positive(table, r)), lanes, lanes}
				for i := range b.starts {
					b.starts[i] = 3 - i
				}
				want := b
				want.sums = make([]float32, len(b.sums))
				plainSums(k.divides)(want, &constants)
				k.run(b, &constants)
				requireSame(f, fmt.Sprintf("%s, %d blocks of %d, %d lanes", e, blocks, extent, lanes), b.sums, want.sums)
			}
		}
	}
}

// testDecodeRow tests all codes of all supported element formats.
func testDecodeRow(k *decodeKernel, f *fences, r *rand.Rand) {
	supported := 0
	for _, element := range format.All() {
		if element.Bits() > 8 || !k.supports.holds(element) {
			continue
		}
		supported++
		bits := element.StoredBits()
		for _, n := range rowLengths {
			const codesPerRead = 64
			stored := make([]byte, (n*bits+7)/8)
			for i := range stored {
				stored[i] = byte(r.Uint32())
			}
			scales := positive(ceilDiv(n, codesPerRead)*codesPerRead/k.extent, r)
			scales[r.IntN(len(scales))] = []float32{0, 1e-40, maxFloat32, float32(math.NaN())}[r.IntN(4)]
			dst := fenced(f, make([]float32, n))
			k.decode(dst, fenced(f, stored), fenced(f, scales), decodeTablesOf[element])
			codes := make([]byte, ceilDiv(n, 8)*8)
			element.Split(codes, append(stored, make([]byte, 8)...))
			want := make([]float32, n)
			for i := range want {
				element.DecodeSliceScaled(want[i:i+1], codes[i:i+1], scales[i/k.extent])
			}
			requireSame(f, fmt.Sprintf("%s, %d codes", element, n), dst, want)
		}
	}
	if supported == 0 {
		f.Fatal("the kernel supports no element format")
	}
}

func testAmaxRow(k *kernel[func(amaxes []uint32, src []byte, extent int)], f *fences, r *rand.Rand) {
	for _, n := range rowLengths {
		for _, extent := range []int{7, 16, 32, 48, 128, n, 3 * n} {
			x := ordinary(n, r)
			src := floatBytes32(x)
			if k.bf16 {
				src = bf16Bytes(x)
			}
			want := make([]uint32, ceilDiv(n, extent))
			for j := range want {
				want[j] = math.Float32bits(r.Float32())
			}
			got := fenced(f, want)
			k.run(got, fenced(f, src), extent)
			for j := range want {
				want[j] = max(want[j], amaxBits(x[j*extent:min((j+1)*extent, n)]))
			}
			if !slices.Equal(got, want) {
				f.Fatalf("the amaxes of %d in blocks of %d are %x, want %x", n, extent, got, want)
			}
		}
	}
}

func testMaxRow(k *kernel[func(src []byte) (amax uint32)], f *fences, r *rand.Rand) {
	for _, n := range rowLengths {
		x := ordinary(n, r)
		src := floatBytes32(x)
		if k.bf16 {
			src = bf16Bytes(x)
		}
		if got, want := k.run(fenced(f, src)), amaxBits(x); got != want {
			f.Fatalf("the amax of %d has bits %#x, want %#x", n, got, want)
		}
	}
}

// testSpreadRow tests rows of several cache lines, with gaps between destinations.
func testSpreadRow(k *kernel[func(dst, src []byte, width, n, stride int)], f *fences, r *rand.Rand) {
	for _, lines := range []int{1, 3} {
		const width, stride = 2, 4 * cacheLine
		src := f.bytes(lines * width * cacheLine)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		dst := f.bytes(lines * stride)
		k.run(dst, src, width, lines, stride)
		fence()
		for l := range lines {
			requireBytes(f, "a spread line", dst[l*stride:][:width*cacheLine], src[l*width*cacheLine:][:width*cacheLine])
		}
	}
}

// testScaleRow: scales and factors of ordinary amaxes, and of all: those are the reference's
// unless the kernel returns false.
func testScaleRow(k *scaleKernel, f *fences, r *rand.Rand) {
	supported := 0
	for _, q := range kernelQuantizers() {
		if !k.supports.holds(&q) {
			continue
		}
		supported++
		o := &output{q: &q, global: arithmetics[q.Arithmetic].global(100, q.Format.Element.Max(), q.top())}
		for n := scaleUnit; n <= 4*scaleUnit; n += scaleUnit {
			for _, hard := range []bool{false, true} {
				values := ordinary(n, r)
				if hard {
					edgeBlocks(values, r, true)
				}
				amaxes := make([]uint32, n)
				valid := true
				for i, v := range values {
					amaxes[i] = math.Float32bits(v) & absMask
					valid = valid && amaxes[i] < exponentMask
				}
				factors, scales := fenced(f, make([]float32, n)), f.bytes(n*q.Format.Scale.StoredBits()/8)
				amax := k.begin(o)(factors, scales, fenced(f, amaxes))
				if amax == flagged && hard {
					continue
				}
				if amax != maxOf(amaxes) || !valid {
					f.Fatalf("%s: the kernel returns %#x, and all amaxes are finite: %t", quantizerName(q), amax, valid)
				}
				for i, a := range amaxes {
					want := q.blockScale(math.Float32frombits(a), false, o.global)
					if got := factors[i]; got != want.factor.value && a != 0 {
						f.Fatalf("%s: the factor of amax %g is %g, want %g", quantizerName(q), values[i], got, want.factor.value)
					}
					if q.Format.Scale == format.F32 {
						requireSame(f, quantizerName(q), floats(scales)[i:i+1], []float32{want.value})
					} else if scales[i] != want.code {
						f.Fatalf("%s: the scale of amax %g is %#x, want %#x", quantizerName(q), values[i], scales[i], want.code)
					}
				}
			}
		}
	}
	if supported == 0 {
		f.Fatal("the kernel supports no quantizer of kernelQuantizers: add one")
	}
}

// amaxBits returns the maximum of the bits of |x[i]|.
func amaxBits(x []float32) (bits uint32) {
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&^(1<<31))
	}
	return bits
}
