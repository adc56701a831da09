package quant

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// TestKernelsTails compares rows whose tails are quantized together with the reference: few and
// many rows, contiguous and with gaps, shorter and longer than a group, of ordinary and edge
// values, with and without non-temporal stores. Nothing beyond the tensor is written.
func TestKernelsTails(t *testing.T) {
	const maxRows, widest, gap = 131, 1000, 5
	if maxRows <= edgeBytes/(2*32) {
		t.Fatal("all rows are quantized together")
	}
	r := rand.New(rand.NewPCG(21, 22))
	usual, all := benchMatrix(maxRows, widest+gap), tensor.New(maxRows, widest+gap)
	edgeBlocks(all.Data, r, true)
	eachKernel(t, func(t *testing.T) {
		for n, f := range []Format{MXFP8, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Vec128} {
			for i, cols := range []int{1, 7, 33, 64, 100, 200, 520, 600, widest} {
				if (n+i)%slow.Stride(1, 3) > 0 {
					continue
				}
				for _, x := range []tensor.Dense{usual, all} {
					rows := []int{1, 3, 17, 64, maxRows}[r.IntN(5)]
					x = x.View(0, rows, 0, cols)
					if i%2 == 0 {
						x = tensor.Of(rows, cols, x.Clone().Data)
					}
					raw := make([]byte, 2*rows*x.Stride)
					if err := tensor.ToBytes(raw[:2*len(x.Data)], x.Data, format.BF16); err != nil {
						t.Fatal(err)
					}
					narrow := tensor.BF16{Rows: rows, Cols: cols, Stride: x.Stride, Data: raw}
					for _, s := range []source{denseSource(x), bf16Source(narrow)} {
						t.Run(fmt.Sprintf("format=%s/shape=%d×%d/bf16=%t", f, rows, cols, s.isBF16()), func(t *testing.T) {
							q := Quantizer{Format: f}
							var want *Tensor
							plainly(t, func() { want = must(t)(q.quantize(s, Rowwise, With{})) })
							for _, side := range []guard.Side{guard.Start, guard.End} {
								for _, stream := range []bool{false, true} {
									got := *want
									got.Codes = guard.Copy(t, bytes.Repeat([]byte{0xa5}, len(want.Codes)), side)
									got.Scales, got.Scales32 = bytes.Clone(want.Scales), make([]float32, len(want.Scales32))
									clear(got.Scales)
									if want.Scales32 == nil {
										got.Scales32 = nil
									}
									o := new(output)
									o.prepare(&q, s, Rowwise, With{Into: &got, Threads: 1})
									o.stream = stream
									new(pipeline).run(s, o, nil, 1)
									sameTensor(t, &got, want)
								}
							}
						})
					}
				}
			}
		}
	})
}

// TestTilesEach checks that goroutines have several tiles each of what a fused kernel quantizes, where tiles do not get too small, and
// that tiles for one goroutine are as large as those of large matrices.
func TestTilesEach(t *testing.T) {
	const cols = 1024
	for _, tc := range []struct{ rows, threads, want int }{
		{128, 2, 4}, {1024, 2, 8}, {1024, 4, 16}, {8192, 4, 64}, {4096, 8, 32}, {1024, 1, 8}, {256, 1, 2},
	} {
		x := tensor.New(tc.rows, cols)
		o := &output{q: &Quantizer{Format: MXFP8}}
		o.fused[0] = &fusedCall{}
		p := pipeline{x: denseSource(x)}
		p.planRows(o, tc.threads)
		if got := ceilDiv(tc.rows, p.rows); got != tc.want {
			t.Errorf("%d rows, %d threads: got %d tiles, want %d", tc.rows, tc.threads, got, tc.want)
		}
	}
}
