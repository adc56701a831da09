package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// TestKernelsRowwiseColumnwise compares rowwise and columnwise copies with the reference, in every tier: of whole and partial
// tiles, from float32 and BF16, with gaps between rows that begin at any address. The seven
// or more quantizers of a format take large shapes in turn, since what follows from the size does
// not depend on the rule. In a short run they take all shapes in turn, on two threads alone.
func TestKernelsRowwiseColumnwise(t *testing.T) {
	const large = 9       // the first large shape
	counts := []int{2, 1} // of threads
	if testing.Short() {
		counts = counts[:1]
	}
	r := rand.New(rand.NewPCG(19, 20))
	for n, q := range append(kernelQuantizers(), Quantizer{Format: BF16}, Quantizer{Format: NVFP4, Hadamard: true}) {
		alone := q.Format.Scale == nil || q.Hadamard || q.Format.Block.Cols == 48 // the only quantizer of its kind
		t.Run(quantizerName(q), func(t *testing.T) {
			for i, shape := range [][2]int{{1, 1}, {64, 64}, {64, 192}, {37, 131}, {96, 48}, {16, 200}, {48, 128}, {129, 65}, {67, 131}, {64, 1104},
				{260, 600}} {
				if q.Hadamard && (shape[0]%hadamardSize > 0 || shape[1]%hadamardSize > 0) || q.Format.Scale != format.E8M0 && shape[1] > 1024 {
					continue
				}
				if turn := n + i; !alone && (i >= large && turn%4 > 0 || turn%slow.Stride(5, 23) > 0) {
					continue
				}
				rows, cols := shape[0], shape[1]
				wide := tensor.New(rows, cols+i)
				edgeBlocks(wide.Data, r, i%3 == 2)
				raw := make([]byte, 2*len(wide.Data))
				for j, v := range wide.Data {
					binary.LittleEndian.PutUint16(raw[2*j:], uint16(math.Float32bits(v)>>16))
				}
				narrow := tensor.BF16{Rows: rows, Cols: cols, Stride: cols + i, Data: raw[2*i:]}
				view := wide.View(0, rows, i, i+cols)
				for _, from := range []struct {
					source     source
					both       func(c Copy) (rows, columns *Tensor, err error)
					columnwise func(with With) (*Tensor, error)
				}{
					{denseSource(view), func(c Copy) (*Tensor, *Tensor, error) { return RowwiseColumnwise(view, c, c) },
						func(with With) (*Tensor, error) { return q.Columnwise(view, with) }},
					{bf16Source(narrow), func(c Copy) (*Tensor, *Tensor, error) { return RowwiseColumnwise(narrow, c, c) },
						func(with With) (*Tensor, error) { return q.ColumnwiseBF16(narrow, with) }},
				} {
					wantRows := specified(t, q, from.source, Rowwise, With{})
					wantColumns := specified(t, q, from.source, Columnwise, With{})
					cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
						for _, threads := range counts {
							gotRows, gotColumns, err := from.both(Copy{q, With{Threads: threads}})
							if err != nil {
								t.Fatal(err)
							}
							sameTensor(t, gotRows, wantRows)
							sameTensor(t, gotColumns, wantColumns)
						}
						for _, threads := range counts {
							sameTensor(t, must(t)(from.columnwise(With{Threads: threads})), wantColumns)
						}
					})
				}
			}
		})
	}
}

// TestRowwiseColumnwiseStreams does the same for sources whose codes are written by non-temporal stores.
func TestRowwiseColumnwiseStreams(t *testing.T) {
	for i, f := range []Format{MXFP4, MXFP8, NVFP4, FP8Row} {
		if i%slow.Stride(1, 4) == 0 {
			testRowwiseColumnwiseStreams(t, 640, 3300, f)
		}
	}
	testRowwiseColumnwiseStreams(t, 256, 8193, MXFP4)
}

func testRowwiseColumnwiseStreams(t *testing.T, rows, cols int, formats ...Format) {
	r := rand.New(rand.NewPCG(21, 22))
	x := tensor.Of(rows, cols, ordinary(rows*cols, r))
	edgeBlocks(x.Data[:len(x.Data)/8], r, true) // for the reference implementation; kernels encode the rest
	narrow := tensor.OfBF16(rows, cols, bf16Bytes(x.Data))
	if len(narrow.Data) < streamBytes {
		t.Fatalf("%d×%d elements of BF16 do not use non-temporal stores", rows, cols)
	}
	for _, f := range formats {
		q := Quantizer{Format: f}
		var wantRows, wantColumns *Tensor
		plainly(t, func() {
			wantRows, wantColumns = must(t)(q.Rowwise(x, With{})), must(t)(q.Columnwise(x, With{}))
		})
		eachKernel(t, func(t *testing.T) {
			c := Copy{Quantizer: q}
			for _, both := range []func() (*Tensor, *Tensor, error){
				func() (*Tensor, *Tensor, error) { return RowwiseColumnwise(x, c, c) },
				func() (*Tensor, *Tensor, error) { return RowwiseColumnwise(narrow, c, c) },
			} {
				gotRows, gotColumns, err := both()
				if err != nil {
					t.Fatal(err)
				}
				sameTensor(t, gotRows, wantRows)
				sameTensor(t, gotColumns, wantColumns)
			}
			sameTensor(t, must(t)(q.Columnwise(x, With{})), wantColumns)
			sameTensor(t, must(t)(q.ColumnwiseBF16(narrow, With{})), wantColumns)
		})
	}
}

// specified is what the specification gives.
func specified(t *testing.T, q Quantizer, x source, d Direction, with With) *Tensor {
	t.Helper()
	if x.isBF16() {
		return must(t)(q.ReferenceBF16(tensor.BF16{Rows: x.rows, Cols: x.cols, Stride: x.stride / 2, Data: x.data}, d, with))
	}
	return must(t)(q.Reference(tensor.Dense{Rows: x.rows, Cols: x.cols, Stride: x.stride / 4, Data: floats(x.data)}, d, with))
}

// TestRowwiseColumnwisePairs makes copies by pairs of quantizers of every kind, twice into the same tensors,
// and compares them with the reference. It checks that With.Scales gets the scales of each row
// once.
func TestRowwiseColumnwisePairs(t *testing.T) {
	odd, whole, several, otherElement := MXFP4, MXFP8, FP8Row, FP8Vec128
	odd.Name, odd.Block = "e2m1 in 48s", Shape{1, 48}
	whole.Name, whole.Block = "e4m3 in 32s of all rows", Shape{0, 32}
	several.Name, several.Block = "e4m3 in four rows", Shape{4, 0}
	otherElement.Name, otherElement.Element = "e5m2 in 128s", format.E5M2
	amax, inverse := float32(3), float32(20)
	random := &Stream{Seed: 7, Step: 3, Tensor: 5}
	drawn := With{Random: random, FirstRow: 36}
	later, other := With{Random: random, FirstRow: 37}, With{Random: &Stream{Seed: 8}, FirstRow: 36}
	r := rand.New(rand.NewPCG(23, 24))
	for i, pair := range [][2]Copy{
		{{Quantizer{Format: MXFP8}, With{}}, {Quantizer{Format: NVFP4}, With{}}},
		{{Quantizer{Format: NVFP4, Rounding: format.Stochastic}, drawn}, {Quantizer{Format: NVFP4, Rounding: format.Stochastic, Hadamard: true},
			drawn}},
		{{Quantizer{Format: NVFP4, Hadamard: true}, With{Amax: &amax}}, {Quantizer{Format: MXFP6E3M2, Rounding: format.Stochastic}, drawn}},
		{{Quantizer{Format: FP8Row}, With{}}, {Quantizer{Format: FP8Row, PowerOfTwo: true}, With{}}},
		{{Quantizer{Format: FP8Row, NonFinite: Poison}, With{}}, {Quantizer{Format: FP8Row, Rounding: format.Stochastic}, drawn}},
		{{Quantizer{Format: FP8Vec128}, With{}}, {Quantizer{Format: FP8Block, NonFinite: PoisonNaN}, With{}}},
		{{Quantizer{Format: FP8Block}, With{}}, {Quantizer{Format: FP8Vec128, Rounding: format.Stochastic}, drawn}},
		{{Quantizer{Format: FP8Tensor}, With{}}, {Quantizer{Format: FP8Tensor, NonFinite: Poison}, With{}}},
		{{Quantizer{Format: FP8Tensor}, With{Inverse: &inverse}}, {Quantizer{Format: MXINT8}, With{}}},
		{{Quantizer{Format: FP8Tensor, Hadamard: true}, With{}}, {Quantizer{Format: FP8Row, Hadamard: true}, With{}}},
		{{Quantizer{Format: BF16}, With{}}, {Quantizer{Format: MXFP4, Search: LeastSquares}, With{}}},
		{{Quantizer{Format: odd}, With{}}, {Quantizer{Format: F32}, With{}}},
		{{Quantizer{Format: NVFP4x16}, With{}}, {Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, drawn}},
		{{Quantizer{Format: whole}, With{}}, {Quantizer{Format: odd}, With{}}},
		{{Quantizer{Format: MXFP4}, With{}}, {Quantizer{Format: several}, With{}}},
		{{Quantizer{Format: FP8Tensor}, With{}}, {Quantizer{Format: FP8Row}, With{}}},
		{{Quantizer{Format: FP8Vec128}, With{}}, {Quantizer{Format: FP8Block}, With{}}},
		{{Quantizer{Format: FP8Row}, With{}}, {Quantizer{Format: FP8Vec128, PowerOfTwo: true}, With{}}},
		{{Quantizer{Format: FP8Tensor}, With{Inverse: &inverse}}, {Quantizer{Format: FP8Tensor}, With{Amax: &amax}}},
		{{Quantizer{Format: FP8Vec128}, With{}}, {Quantizer{Format: otherElement}, With{}}},
		{{Quantizer{Format: FP8Block}, With{}}, {Quantizer{Format: FP8Block}, With{}}},
		{{Quantizer{Format: FP8Block, Hadamard: true}, With{}}, {Quantizer{Format: FP8Block, Hadamard: true}, With{}}},
		{{Quantizer{Format: FP8Tensor}, With{Inverse: &inverse}}, {Quantizer{Format: FP8Tensor}, With{Inverse: &amax}}},
		{{Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, drawn}, {Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, drawn}},
		{{Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, drawn}, {Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, later}},
		{{Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, drawn}, {Quantizer{Format: MXFP8x32, Rounding: format.Stochastic}, other}},
	} {
		t.Run(fmt.Sprintf("rowwise=%s/columnwise=%s/%d", pair[0].Quantizer.Format, pair[1].Quantizer.Format, i), func(t *testing.T) {
			for s, shape := range [][2]int{{16, 16}, {133, 39}, {144, 1040}, {80, 144}} {
				rows, cols := shape[0], shape[1]
				if (pair[0].Quantizer.Hadamard || pair[1].Quantizer.Hadamard) && rows%hadamardSize > 0 ||
					rows*cols > 1<<16 && i%slow.Stride(3, 9) > 0 || (i+s)%slow.Stride(1, 4) > 0 {
					continue
				}
				x := tensor.New(rows, cols+i)
				edgeBlocks(x.Data, r, (i+s)%2 == 1)
				raw := bf16Bytes(x.Data) // cut off, since rounding makes Inf of the largest
				view, narrow := x.View(0, rows, i, i+cols), tensor.BF16{Rows: rows, Cols: cols, Stride: cols + i, Data: raw[2*i:]}
				wantRows := specified(t, pair[0].Quantizer, denseSource(view), Rowwise, pair[0].With)
				wantColumns := specified(t, pair[1].Quantizer, denseSource(view), Columnwise, pair[1].With)
				cputest.Vectors(t, func(t *testing.T, tier cpu.Tier) {
					if tier == cpu.Plain && rows*cols > 1<<16 {
						return // what it is compared with
					}
					for threads := range 2 {
						row, col := pair[0], pair[1]
						row.With.Threads = threads
						checkRow, checkCol := collectScales(&row), collectScales(&col)
						for again := range 2 {
							both := func() (*Tensor, *Tensor, error) { return RowwiseColumnwise(view, row, col) }
							if again == 1 {
								both = func() (*Tensor, *Tensor, error) { return RowwiseColumnwise(narrow, row, col) }
							}
							gotRows, gotColumns, err := both()
							if err != nil {
								t.Fatal(err)
							}
							sameTensor(t, gotRows, wantRows)
							sameTensor(t, gotColumns, wantColumns)
							checkRow(t, gotRows)
							checkCol(t, gotColumns)
							row.With.Into, col.With.Into = gotRows, gotColumns
							for _, old := range []*Tensor{gotRows, gotColumns} {
								for i := range old.Codes {
									old.Codes[i] = 0xff
								}
							}
						}
						if threads == 0 {
							sameTensor(t, must(t)(pair[1].Quantizer.Columnwise(view, pair[1].With)), wantColumns)
							sameTensor(t, must(t)(pair[1].Quantizer.ColumnwiseBF16(narrow, pair[1].With)), wantColumns)
						}
					}
				})
			}
		})
	}
}

// collectScales makes c collect scales of one byte by With.Scales, and returns a function that compares
// them with those of the tensor.
func collectScales(c *Copy) func(*testing.T, *Tensor) {
	if !c.Quantizer.Format.ByteScales() {
		return func(*testing.T, *Tensor) {}
	}
	var lock sync.Mutex
	rows := map[int][]byte{}
	c.With.Scales = func(row int, codes []byte) {
		lock.Lock()
		defer lock.Unlock()
		if rows[row] != nil {
			panic("Scales was called twice for a row")
		}
		rows[row] = bytes.Clone(codes)
	}
	return func(t *testing.T, got *Tensor) {
		t.Helper()
		for l := range got.StoredRows() {
			if !bytes.Equal(rows[l], got.rowScales(l)) {
				t.Fatalf("row %d: Scales got %v, want %v", l, rows[l], got.rowScales(l))
			}
		}
		clear(rows)
	}
}

// TestAllocationsRowwiseColumnwise checks that copies into existing tensors allocate no memory for rows or
// elements. It takes the minimum of several calls, since pools are per processor.
func TestAllocationsRowwiseColumnwise(t *testing.T) {
	slow.Race(t, slow.Allocations)
	slow.Emulated(t, "allocations are those of every processor")
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		shapes := [][2]int{{1000, 1000}, {512, 2048}}
		if testing.Short() {
			shapes = shapes[:1]
		}
		for _, shape := range shapes {
			for _, f := range []Format{MXFP8, MXFP4, MXFP6E2M3, MXINT8, NVFP4, FP8Tensor, FP8Row, FP8Vec128, FP8Block} {
				testAllocationsRowwiseColumnwise(t, f, benchMatrix(shape[0], shape[1]))
			}
		}
	})
}

func testAllocationsRowwiseColumnwise(t *testing.T, f Format, x tensor.Dense) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools keep what they have
	together, alone := Copy{Quantizer{Format: f}, With{Threads: 1}}, Copy{Quantizer{Format: f}, With{Threads: 2}}
	columns := together
	for _, v := range []struct {
		copies string
		most   uint64 // bytes
		run    func() error
	}{
		{"both", 12 << 10, func() (err error) {
			together.With.Into, columns.With.Into, err = RowwiseColumnwise(x, together, columns)
			return err
		}},
		{"rowwise", 48 << 10, func() (err error) {
			alone.With.Into, err = alone.Quantizer.Rowwise(x, alone.With)
			return err
		}},
	} {
		least := uint64(math.MaxUint64)
		for round := 0; round < 6 && least > v.most; round++ {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := v.run(); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > v.most {
			t.Errorf("format=%s, %d×%d, %s: %d bytes in a call", f, x.Rows, x.Cols, v.copies, least)
		}
	}
}

// BenchmarkRowwiseColumnwise sets the two copies that training keeps beside each of them alone:
// in the second-level cache, in the third, from memory, and there with rows a power
// of two apart. It counts the bytes of the source.
func BenchmarkRowwiseColumnwise(b *testing.B) {
	for _, shape := range []struct{ rows, cols int }{{32, 2048}, {64, 1024}, {1024, 768}, {8192, 8256}, {8192, 8192}} {
		x := benchMatrix(shape.rows, shape.cols)
		raw := make([]byte, 2*len(x.Data))
		if err := tensor.ToBytes(raw, x.Data, format.BF16); err != nil {
			b.Fatal(err)
		}
		narrow := tensor.OfBF16(x.Rows, x.Cols, raw)
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP4, MXFP6E2M3, MXINT8, NVFP4, FP8Tensor, FP8Row, FP8Vec128, FP8Block} {
			c := Copy{Quantizer{Format: f}, With{Threads: 1}}
			row, col := c, c
			row.With.Into = must(b)(c.Quantizer.Rowwise(x, c.With))
			col.With.Into = must(b)(c.Quantizer.Columnwise(x, c.With))
			for _, v := range []struct {
				source, copies string
				bytes          int
				run            func() error
			}{
				{"f32", "rowwise", 4, func() error { _, err := row.Quantizer.Rowwise(x, row.With); return err }},
				{"f32", "columnwise", 4, func() error { _, err := col.Quantizer.Columnwise(x, col.With); return err }},
				{"f32", "both", 4, func() error { _, _, err := RowwiseColumnwise(x, row, col); return err }},
				{"bf16", "rowwise", 2, func() error { _, err := row.Quantizer.RowwiseBF16(narrow, row.With); return err }},
				{"bf16", "columnwise", 2, func() error { _, err := col.Quantizer.ColumnwiseBF16(narrow, col.With); return err }},
				{"bf16", "both", 2, func() error { _, _, err := RowwiseColumnwise(narrow, row, col); return err }},
			} {
				b.Run(fmt.Sprintf("format=%s/source=%s/rows=%d/cols=%d/copies=%s", f, v.source, shape.rows, shape.cols, v.copies), func(b *testing.B) {
					b.SetBytes(int64(v.bytes * len(x.Data)))
					for b.Loop() {
						if err := v.run(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
