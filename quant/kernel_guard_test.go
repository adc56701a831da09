package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/tensor"
)

// guardedFloats copies values to where nothing beyond the side can be touched.
func guardedFloats(t *testing.T, values []float32, side guard.Side) []float32 {
	t.Helper()
	if len(values) == 0 {
		return values
	}
	b := guard.Bytes(t, 4*len(values), side)
	g := unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(values))
	copy(g, values)
	return g
}

// TestKernelsStayInside checks that no memory outside source and result is touched, for rows of
// any length at any address.
func TestKernelsStayInside(t *testing.T) {
	formats := []Format{MXFP8, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Tensor, FP8Row, FP8Vec128, FP8Block, MXFP8x32}
	eachKernel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, f := range formats {
			for _, cols := range []int{1, 15, 16, 31, 33, 64, 127, 512, 513, 1100} {
				for _, side := range []guard.Side{guard.Start, guard.End} {
					t.Run(fmt.Sprintf("format=%s/cols=%d/side=%d", f, cols, side), func(t *testing.T) {
						const rows = 2
						x := tensor.Of(rows, cols, guardedFloats(t, make([]float32, rows*cols), side))
						edgeBlocks(x.Data, r, false)
						q := Quantizer{Format: f}
						want, err := q.Rowwise(x, With{Threads: 1})
						if err != nil {
							t.Fatal(err)
						}
						got := *want
						got.Codes = guard.Copy(t, want.Codes, side)
						if want.Scales != nil {
							got.Scales = guard.Copy(t, want.Scales, side)
						}
						got.Scales32 = guardedFloats(t, want.Scales32, side)
						raw := make([]byte, 2*len(x.Data))
						for i := range x.Data {
							bits := math.Float32bits(x.Data[i]) >> 16
							binary.LittleEndian.PutUint16(raw[2*i:], uint16(bits))
						}
						xs := tensor.OfBF16(rows, cols, guard.Copy(t, raw, side))
						wantRaw, err := q.RowwiseBF16(xs, With{Threads: 1})
						if err != nil {
							t.Fatal(err)
						}
						for _, one := range []struct {
							x    source
							want *Tensor
						}{{bf16Source(xs), wantRaw}, {denseSource(x), want}} {
							got.Amax = one.want.Amax
							got.Global = one.want.Global
							for _, stream := range []bool{false, true} {
								clear(got.Codes)
								o := new(output)
								o.prepare(&q, one.x, Rowwise, With{Into: &got, Threads: 1})
								o.stream = stream
								new(pipeline).run(one.x, o, nil, 1)
								sameTensor(t, &got, one.want)
							}
						}

						values := guardedFloats(t, make([]float32, cols), side)
						decode := got.rowDecoder()
						whole := want.Dequantize(1)
						for l := range rows {
							decode(values, l)
							if !slices.Equal(values, whole.Row(l)) {
								t.Errorf("row %d decodes to other values alone", l)
							}
						}
					})
				}
			}
		}
	})
}

// TestKernelsColumnsStayInside is TestKernelsStayInside of columnwise tensors.
func TestKernelsColumnsStayInside(t *testing.T) {
	eachKernel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP4, NVFP4, FP8Vec128} {
			for _, shape := range [][2]int{{1, 16}, {31, 17}, {32, 16}, {64, 33}, {65, 48}, {130, 15}, {130, 150}} {
				for _, side := range []guard.Side{guard.Start, guard.End} {
					t.Run(fmt.Sprintf("format=%s/shape=%d×%d/side=%d", f, shape[0], shape[1], side), func(t *testing.T) {
						x := tensor.Of(shape[0], shape[1], guardedFloats(t, make([]float32, shape[0]*shape[1]), side))
						edgeBlocks(x.Data, r, shape[0] > 64)
						q := Quantizer{Format: f}
						got, err := q.Columnwise(x, With{})
						if err != nil {
							t.Fatal(err)
						}
						got.Codes = guard.Copy(t, got.Codes, side)
						if got.Scales != nil {
							got.Scales = guard.Copy(t, got.Scales, side)
						}
						got.Scales32 = guardedFloats(t, got.Scales32, side)
						if _, err := q.Columnwise(x, With{Into: got}); err != nil {
							t.Fatal(err)
						}
						var want *Tensor
						plainly(t, func() { want = must(t)(q.Columnwise(x, With{})) })
						sameTensor(t, got, want)
						o := new(output)
						o.prepare(&q, denseSource(x), Columnwise, With{Into: got})
						clear(got.Codes)
						o.stream = true
						new(pipeline).run(denseSource(x), nil, o, 1)
						sameTensor(t, got, want)
					})
				}
			}
		}
	})
}

// TestKernelsTranspose checks transpositions of shapes about the size of a tile, in every tier,
// and that no memory outside is touched.
func TestKernelsTranspose(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		for _, rows := range []int{1, 15, 16, 17, 48, 100} {
			for _, cols := range []int{1, 15, 16, 17, 48, 100} {
				for _, side := range []guard.Side{guard.Start, guard.End} {
					src := tensor.Of(rows, cols, guardedFloats(t, make([]float32, rows*cols), side))
					for i := range src.Data {
						src.Data[i] = float32(i)
					}
					dst := tensor.Of(cols, rows, guardedFloats(t, make([]float32, rows*cols), side))
					transpose(dst, denseSource(src))
					if !slices.Equal(dst.Data, src.Transpose().Data) {
						t.Fatalf("the transpose of %d×%d is not its transpose", rows, cols)
					}
				}
			}
		}
	})
}
