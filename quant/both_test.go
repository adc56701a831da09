package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestKernelsBoth: both copies are those of the plain form, of whole tiles, of less,
// and of more than one strip; from rows with gaps that begin anywhere.
func TestKernelsBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for _, q := range kernelQuantizers() {
		if q.Format.Scale != format.E8M0 {
			continue
		}
		t.Run(quantizerName(q), func(t *testing.T) {
			for i, shape := range [][2]int{{1, 1}, {64, 64}, {64, 192}, {37, 131}, {96, 48}, {129, 65}, {64, stripSize + 80}} {
				whole := tensor.New(shape[0], shape[1]+i)
				edgeBlocks(whole.Data, r, i%3 == 2)
				x := whole.View(0, shape[0], i, i+shape[1])
				var rows, columns *Tensor
				plainly(t, func() {
					rows, columns = must(t)(q.Rowwise(x, With{})), must(t)(q.Columnwise(x, With{}))
				})
				eachKernel(t, func(t *testing.T) {
					for threads := range 3 {
						c := Copy{q, With{Threads: threads}}
						gotRows, gotColumns, err := Both(x, c, c)
						if err != nil {
							t.Fatal(err)
						}
						sameTensor(t, gotRows, rows)
						sameTensor(t, gotColumns, columns)
					}
				})
			}
		})
	}
}

// testBothRow calls a kernel for both copies, whichever way it writes.
func testBothRow(k *bothKernel, f *fences, r *rand.Rand) {
	for _, q := range kernelQuantizers() {
		if !k.serves(&q) {
			continue
		}
		for n := 1; n <= 3; n++ {
			x := tensor.Of(tileSide, n*tileSide, ordinary(n*tileSide*tileSide, r))
			for i, v := range x.Data {
				x.Data[i] = toBF16(v)
			}
			rows, columns := must(f)(q.Rowwise(x, With{})), must(f)(q.Columnwise(x, With{}))
			src := source{dense: tensor.Of(x.Rows, x.Cols, fenced(f, x.Data))}
			if k.raw {
				raw := make([]byte, 2*len(x.Data))
				if err := tensor.ToBytes(raw, x.Data, format.BF16); err != nil {
					f.Fatal(err)
				}
				src = rawSource(tensor.OfBF16(x.Rows, x.Cols, fenced(f, raw)))
			}
			for _, stream := range []bool{false, true} {
				gotRows, gotColumns := *rows, *columns
				for _, got := range []*Tensor{&gotRows, &gotColumns} {
					got.Codes, got.Scales = f.bytes(len(got.Codes)), f.bytes(len(got.Scales))
				}
				row, col := &run{q: &q, t: &gotRows, x: src, stream: stream}, &run{q: &q, t: &gotColumns, x: src, stream: stream}
				a := k.begin(row)(row.place(0, 0), col.place(0, 0), src.bytes(0, tileSide), src.strideBytes(), n, 0)
				if a != math.Float32bits(rows.Amax) {
					f.Fatalf("%s, %d tiles: the amax has bits %#x, want %#x", quantizerName(q), n, a, math.Float32bits(rows.Amax))
				}
				row.endStream()
				requireBytes(f, "codes of rows", gotRows.Codes, rows.Codes)
				requireBytes(f, "scales of rows", gotRows.Scales, rows.Scales)
				requireBytes(f, "codes of columns", gotColumns.Codes, columns.Codes)
				requireBytes(f, "scales of columns", gotColumns.Scales, columns.Scales)
			}
		}
	}
}

// BenchmarkBoth sets the two copies that training keeps beside each of them alone:
// in the second-level cache, in the third, from memory, and there with rows a power
// of two apart.
func BenchmarkBoth(b *testing.B) {
	for _, shape := range []struct{ rows, cols int }{{32, 2048}, {64, 1024}, {1024, 768}, {8192, 8256}, {8192, 8192}} {
		x := benchMatrix(shape.rows, shape.cols)
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP4} {
			c := Copy{Quantizer{Format: f}, With{Threads: 1}}
			row, col := c, c
			row.With.Into = must(b)(c.Quantizer.Rowwise(x, c.With))
			col.With.Into = must(b)(c.Quantizer.Columnwise(x, c.With))
			for _, v := range []struct {
				copies string
				run    func() error
			}{
				{"rowwise", func() error { _, err := row.Quantizer.Rowwise(x, row.With); return err }},
				{"columnwise", func() error { _, err := col.Quantizer.Columnwise(x, col.With); return err }},
				{"both", func() error { _, _, err := Both(x, row, col); return err }},
			} {
				b.Run(fmt.Sprintf("format=%s/rows=%d/cols=%d/copies=%s", f, shape.rows, shape.cols, v.copies), func(b *testing.B) {
					b.SetBytes(int64(4 * len(x.Data)))
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
