package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// testFusedRow: whole groups, of ordinary blocks and of all kinds.
func testFusedRow(k *fusedKernel, f *fences, r *rand.Rand) {
	served := 0
	for _, q := range kernelQuantizers() {
		if !k.serves(&q) {
			continue
		}
		served++
		for _, groups := range []int{1, 2, 3} {
			for _, hard := range []bool{false, true} {
				values := ordinary(groups*k.group*q.Format.Block.Cols, r)
				if hard {
					edgeBlocks(values, r, false)
				}
				var x source
				var memory []byte
				if k.raw {
					memory = bf16Bytes(values)
					x = rawSource(tensor.OfBF16(1, len(values), memory))
				} else {
					x, memory = denseSource(tensor.Of(1, len(values), values)), floatBytes32(values)
				}
				amax := format.MaxBits(values)
				global := math.Float32frombits(amax)
				with := With{}
				if q.Format.Global {
					with.Amax = &global
				}
				want := must(f)(q.quantize(x, Rowwise, with))
				run := q.newRun(x, Rowwise, with)
				for _, run.stream = range []bool{false, true} {
					codes, scales := f.bytes(len(want.Codes)), f.bytes(len(want.scaleMemory(0, groups*k.group)))
					got := k.begin(run)(codes, scales, fenced(f, memory), groups, run.streamsTo(codes))
					if got == flagged && hard {
						continue
					}
					name := fmt.Sprintf("%s, %d groups", quantizerName(q), groups)
					if got != amax {
						f.Fatalf("%s: the amax has bits %#x, want %#x", name, got, amax)
					}
					requireBytes(f, name+", scales", scales, want.scaleMemory(0, groups*k.group))
					requireBytes(f, name+", codes", codes, want.Codes)
				}
			}
		}
	}
	if served == 0 {
		f.Fatal("no quantizer of kernelQuantizers is served: add one")
	}
}

// testRowsRow: with codes, with what comes next, and with both; rows behind each other
// and with gaps between them.
func testRowsRow(k *rowsKernel, f *fences, r *rand.Rand) {
	for _, element := range signedElements(8) {
		q := Quantizer{Format: FP8Row}
		q.Format.Element = element
		for i, shape := range []struct{ rows, blocks, units, gap int }{
			{1, 1, 1, 0}, {1, 1, 2, 0}, {1, 1, 5, 0}, {1, 2, 2, 0}, {1, 3, 1, 0}, {3, 2, 1, 0}, {3, 1, 2, 64}, {2, 3, 1, 192}, {4, 2, 2, 64},
		} {
			extent := shape.units * rowsUnit
			width := shape.blocks * extent
			stride := width + shape.gap
			size := (shape.rows-1)*stride + width
			c := q.bytesConstants()
			c.stream = uint32(i % 2)
			values, coming := ordinary(size, r), ordinary(size, r)
			src, next, first := floatBytes32(values), floatBytes32(coming), positive(shape.blocks*maximaLanes, r)
			if k.raw {
				src, next = bf16Bytes(values), bf16Bytes(coming)
				bf16Bytes(first)
			}
			factors := positive(shape.blocks, r)
			elementBytes := len(src) / size
			for _, part := range []struct{ codes, next bool }{{true, false}, {false, true}, {true, true}} {
				maxima := fenced(f, first)
				t := rowsTile{
					rows: shape.rows, units: shape.units, codeGap: shape.gap, srcGap: shape.gap * elementBytes,
					srcAhead: lineAhead, nextAhead: nextAhead, factors: fenced(f, factors), maxima: maxima,
				}
				var want []byte
				if part.codes {
					t.codes, t.src = f.bytes(size), fenced(f, src)
					want = slices.Clone(t.codes)
					c.stream &= uint32(index(isAligned(t.codes)))
				}
				if part.next {
					t.next = fenced(f, next)
				}
				wantMaxima := make([]uint32, shape.blocks)
				for row := range shape.rows {
					for j := range shape.blocks {
						at := row*stride + j*extent
						if part.codes {
							for i, v := range values[at : at+extent] {
								element.EncodeSlice(want[at+i:at+i+1], []float32{float32(v * factors[j])})
							}
						}
						if part.next {
							wantMaxima[j] = max(wantMaxima[j], format.MaxBits(coming[at:at+extent]))
						}
					}
				}
				k.encode(t, &c)
				name := fmt.Sprintf("%s, %d rows of %d blocks of %d, %d between them", element, shape.rows, shape.blocks, extent, shape.gap)
				if part.codes {
					requireBytes(f, name, t.codes, want)
				}
				for j, w := range wantMaxima {
					w = max(w, maxFloatBits(first[j*maximaLanes:(j+1)*maximaLanes]))
					if g := maxFloatBits(maxima[j*maximaLanes : (j+1)*maximaLanes]); g != w {
						f.Fatalf("%s: the maxima of block %d have bits up to %#x, want %#x", name, j, g, w)
					}
				}
			}
		}
	}
}

// isAligned reports whether codes there may go past the caches.
func isAligned(codes []byte) bool { return uintptr(unsafe.Pointer(&codes[0]))%64 == 0 }

// testLineRow: codes of lines that end anywhere, and their maxima.
func testLineRow(k *lineKernel, f *fences, r *rand.Rand) {
	elements := signedElements(k.bits)
	if len(elements) == 0 {
		f.Fatalf("there is no element format of %d bits", k.bits)
	}
	for _, element := range elements {
		c := newLineConstants(element)
		for _, n := range rowLengths {
			x, random := ordinary(n, r), make([]uint32, n)
			factors := positive((n+lineUnit-1)/lineUnit*lineUnit/factorExtent, r)
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
			src := fenced(f, x)
			amax := k.encode(got, src, fenced(f, random), fenced(f, factors), &c)
			name := fmt.Sprintf("%s, %d elements", element, n)
			requireBytes(f, name, got, want)
			if w := format.MaxBits(x); amax != w {
				f.Fatalf("%s: the amax has bits %#x, want %#x", name, amax, w)
			}
			first := positive(n, r)
			maxima := fenced(f, first)
			k.maxima(maxima, src)
			for i, v := range x {
				first[i] = max(first[i], float32(math.Abs(float64(v))))
			}
			requireSame(f, name+", maxima", maxima, first)
		}
	}
}

func testPhiloxRow(k *philoxKernel, f *fences, r *rand.Rand) {
	s := Stream{Seed: r.Uint64(), Step: r.Uint32(), Tensor: r.Uint32() >> 8, Operand: 5}
	c := s.philoxConstants()
	for _, units := range []int{1, 2, 7} {
		for _, first := range []uint64{0, 1<<32 - 3, 1<<62 - 1000} {
			dst := fenced(f, make([]uint32, units*philoxUnit))
			k.words(dst, first, &c)
			for i, got := range dst {
				if want := s.At(first*philoxWords + uint64(i)); got != want {
					f.Fatalf("word %d from counter %d on is %#x, want %#x", i, first, got, want)
				}
			}
		}
	}
}

func testHadamardRow(k *hadamardKernel, f *fences, r *rand.Rand) {
	for _, n := range []int{1, 2, 5} {
		x := ordinary(n*hadamardSize, r)
		edgeBlocks(x[:hadamardSize], r, false)
		x[len(x)-1] = float32(math.NaN())
		got := fenced(f, x)
		k.transform(got, &hadamardFlips, hadamardNaN)
		for i := 0; i < len(x); i += hadamardSize {
			Hadamard16(x[i : i+hadamardSize])
		}
		requireSame(f, fmt.Sprintf("%d times %d", n, hadamardSize), got, x)
	}
}

func testAmaxBF16Row(k *amaxBF16Kernel, f *fences, r *rand.Rand) {
	for _, n := range rowLengths {
		for _, at := range []int{0, n - 1, r.IntN(n)} {
			x := ordinary(n, r)
			x[at] = -1000
			src := fenced(f, bf16Bytes(x))
			if got, want := k.amax(src), format.MaxBits(x); got != want {
				f.Fatalf("the amax of %d has bits %#x, want %#x", n, got, want)
			}
		}
	}
}

// testEncodeRow: extents of whole units, of others, and of the whole line.
func testEncodeRow(k *encodeKernel, f *fences, r *rand.Rand) {
	for _, element := range slices.Concat(signedElements(8), signedElements(6), signedElements(4)) {
		c := newEncodeConstants(element)
		for i, n := range rowLengths {
			for _, extent := range []int{n, []int{7, 16, 32, 48, 128}[i%5]} {
				x, factors := ordinary(n, r), positive(ceilDiv(n, extent), r)
				want := make([]byte, n)
				for i, v := range x {
					y := float32(v * factors[i/extent])
					if k.divide {
						y = v / factors[i/extent]
					}
					element.EncodeSlice(want[i:i+1], []float32{y})
				}
				codes := f.bytes(n)
				amax := k.encode(codes, fenced(f, x), fenced(f, factors), extent, &c)
				name := fmt.Sprintf("%s, %d elements in blocks of %d", element, n, extent)
				requireBytes(f, name, codes, want)
				if w := format.MaxBits(x); amax != w {
					f.Fatalf("%s: the amax has bits %#x, want %#x", name, amax, w)
				}
			}
		}
	}
}

func testSearchRow(k *searchKernel, f *fences, r *rand.Rand) {
	for _, e := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, MXINT8} {
		q := Quantizer{Format: e, Search: LeastSquares}
		s := (&run{q: &q, t: newTensor(e, Rowwise, 1, searchUnit)}).newSearcher()
		constants := s.constants
		for _, groups := range []int{1, 2, 5} {
			for _, n := range []int{1, 3, mostCandidates} {
				x, factors, decodes := ordinary(groups*searchUnit, r), positive(n, r), positive(n, r)
				errors := fenced(f, make([]float64, n))
				k.errors(errors, fenced(f, x), fenced(f, factors), fenced(f, decodes), n, &constants)
				codes, scaled := make([]byte, len(x)), make([]float32, len(x))
				for i := range n {
					s.encodePlain(codes, x, blockFactor{factor: factor{value: factors[i], divide: k.divide}}, scaled)
					if want := s.squaredError(x, codes, decodes[i]); errors[i] != want {
						f.Fatalf("%s, %d elements: error %d of %d is %v, want %v", e, len(x), i, n, errors[i], want)
					}
				}
			}
		}
	}
}

// testDecodeRow: all element formats that are served, and all codes.
func testDecodeRow(k *decodeKernel, f *fences, r *rand.Rand) {
	served := 0
	for _, element := range format.All() {
		if element.Bits() > 8 || !k.serves(element) {
			continue
		}
		served++
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
	if served == 0 {
		f.Fatal("no element format is served")
	}
}

func testAmaxRow(k *amaxKernel, f *fences, r *rand.Rand) {
	for _, n := range rowLengths {
		for _, extent := range []int{7, 16, 32, 48, 128, n} {
			x := ordinary(n, r)
			want := make([]uint32, ceilDiv(n, extent))
			for j := range want {
				want[j] = math.Float32bits(r.Float32())
			}
			got := fenced(f, want)
			k.raise(got, fenced(f, x), extent)
			for j := range want {
				want[j] = max(want[j], format.MaxBits(x[j*extent:min((j+1)*extent, n)]))
			}
			if !slices.Equal(got, want) {
				f.Fatalf("the amaxes of %d in blocks of %d are %x, want %x", n, extent, got, want)
			}
		}
		x := ordinary(n, r)
		if got, want := k.most(fenced(f, x)), format.MaxBits(x); got != want {
			f.Fatalf("the amax of %d has bits %#x, want %#x", n, got, want)
		}
	}
}

// testSpreadRow: lines of more than one unit, to places with gaps.
func testSpreadRow(k *spreadKernel, f *fences, r *rand.Rand) {
	for _, lines := range []int{1, 3} {
		const width, stride = 2, 4 * spreadUnit
		src := f.bytes(lines * width * spreadUnit)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		dst := f.bytes(lines * stride)
		k.spread(dst, src, width, lines, stride)
		for l := range lines {
			requireBytes(f, "a spread line", dst[l*stride:][:width*spreadUnit], src[l*width*spreadUnit:][:width*spreadUnit])
		}
	}
}

// testFetchRow: memory that is not there is no fault, and none is written.
func testFetchRow(k *fetchKernel, f *fences, _ *rand.Rand) {
	src := f.bytes(3 * 100)
	k.fetch(src, 2, 3, 100)
	requireBytes(f, "what was fetched", src, make([]byte, len(src)))
}

func testTransposeRow(k *transposeKernel, f *fences, r *rand.Rand) {
	for _, n := range []int{1, 2, 3} {
		for _, gap := range []int{0, 5} {
			rows, cols := n*transposeSize, transposeSize
			srcStride, dstStride := cols+gap, rows+gap
			src := ordinary((rows-1)*srcStride+cols, r)
			dst := fenced(f, make([]float32, (cols-1)*dstStride+rows))
			k.transpose(dst, fenced(f, src), dstStride, srcStride, n)
			for i := range rows {
				for j := range cols {
					if got, want := dst[j*dstStride+i], src[i*srcStride+j]; got != want {
						f.Fatalf("%d rows: element %d of row %d is %v, want %v", rows, i, j, got, want)
					}
				}
			}
		}
	}
}

func testPairRow(k *pairKernel, f *fences, r *rand.Rand) {
	const size = 2
	for _, n := range []int{1, 2, 3} {
		for _, gap := range []int{0, 5} {
			rows, cols := n*pairSize, pairSize
			srcStride, dstStride := size*(cols+gap), size*(rows+gap)
			src, dst := f.bytes((rows-1)*srcStride+size*cols), f.bytes((cols-1)*dstStride+size*rows)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			k.transpose(dst, src, dstStride, srcStride, n)
			for i := range rows {
				for j := range cols {
					requireBytes(f, "an element", dst[j*dstStride+size*i:][:size], src[i*srcStride+size*j:][:size])
				}
			}
		}
	}
}

// testBothRow: tiles beside each other, into lines with gaps, of both copies, and of the
// columnwise one alone with fewer rows, too.
func testBothRow(k *bothKernel, f *fences, r *rand.Rand) {
	served := 0
	for _, q := range kernelQuantizers() {
		if !k.serves(&q) {
			continue
		}
		served++
		for i, n := range []int{1, 2, 3} {
			for rows := k.part; rows <= tileSide; rows += k.part {
				testTiles(k, f, q, rows, n, i%2*2*tileSide, r)
			}
		}
	}
	if served == 0 {
		f.Fatal("no quantizer of kernelQuantizers is served: add one")
	}
}

// testTiles is testBothRow of n tiles of so many rows, and of lines with gaps.
func testTiles(k *bothKernel, f *fences, q Quantizer, rows, n, gap int, r *rand.Rand) {
	width := n*tileSide + gap
	values := ordinary((rows-1)*width+n*tileSide, r)
	memory := floatBytes32(values)
	if k.raw {
		memory = bf16Bytes(values)
	}
	x := tensor.Dense{Rows: rows, Cols: n * tileSide, Stride: width, Data: values}
	byRow, byColumn := must(f)(q.Rowwise(x, With{})), must(f)(q.Columnwise(x, With{}))
	for _, stream := range []bool{false, true} {
		if stream && rows < tileSide {
			continue
		}
		run := &run{q: &q, t: byRow, stream: stream}
		if q.Format.Global {
			run.global = arithmetics[q.Arithmetic].global(byRow.Amax, q.Format.Element.Max(), q.top())
		}
		place := func(t *Tensor) tilePlace {
			each := max(t.scaleCols(), tileSide/t.extent())
			p := tilePlace{codeStride: t.LineBytes() + gap, scaleStride: each + gap}
			p.codes, p.scales = f.bytes((t.Lines()-1)*p.codeStride+t.LineBytes()), f.bytes((t.Lines()-1)*p.scaleStride+each)
			return p
		}
		src, stride := fenced(f, memory), len(memory)/len(values)*width
		type made struct {
			tilePlace
			want *Tensor
		}
		alone := made{place(byColumn), byColumn}
		amaxes, all := []uint32{k.alone(run)(tiles{tilePlace{}, alone.tilePlace, src, stride, n, rows, 0})}, []made{alone}
		if rows == tileSide {
			both := []made{{place(byRow), byRow}, {place(byColumn), byColumn}}
			amaxes, all = append(amaxes, k.begin(run)(tiles{both[0].tilePlace, both[1].tilePlace, src, stride, n, rows, 0})), append(all, both...)
		}
		run.endStream()
		name := fmt.Sprintf("%s, %d tiles of %d rows", quantizerName(q), n, rows)
		for _, amax := range amaxes {
			if want := math.Float32bits(byRow.Amax); amax != want {
				f.Fatalf("%s: the amax has bits %#x, want %#x", name, amax, want)
			}
		}
		for _, c := range all {
			for l := range c.want.Lines() {
				requireBytes(f, name+", codes of a line", c.codes[l*c.codeStride:][:c.want.LineBytes()], c.want.line(l))
				requireBytes(f, name+", scales of a line", c.scales[l*c.scaleStride:][:c.want.scaleCols()], c.want.lineScales(l))
			}
		}
	}
}
