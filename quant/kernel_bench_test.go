package quant

import (
	"fmt"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// benchShapes are a source that stays in the second-level cache, and one that
// does not fit in any.
var benchShapes = []struct{ rows, cols int }{{32, 2048}, {4096, 8192}}

// benchMatrix returns values of all signs and of many sizes.
func benchMatrix(rows, cols int) tensor.Dense {
	x := tensor.New(rows, cols)
	state := splitMix(1)
	for i := range x.Data {
		u := state.next()
		x.Data[i] = (float32(u>>40)/(1<<23) - 1) * float32(1+u&7)
	}
	return x
}

// benchTiers runs body in every tier.
func benchTiers(b *testing.B, body func(b *testing.B)) {
	before := cpu.Best()
	defer func() {
		if err := cpu.Force(before); err != nil {
			b.Fatal(err)
		}
	}()
	for _, tier := range cpu.Tiers() {
		if err := cpu.Force(tier); err != nil {
			b.Fatal(err)
		}
		b.Run("kernel="+tier.String(), body)
	}
}

// BenchmarkQuantize counts the bytes of the source that are read.
func BenchmarkQuantize(b *testing.B) { benchTiers(b, benchmarkQuantize) }

func benchmarkQuantize(b *testing.B) {
	for _, shape := range benchShapes {
		x := benchMatrix(shape.rows, shape.cols)
		raw := tensor.OfBF16(shape.rows, shape.cols, make([]byte, 2*len(x.Data)))
		if err := tensor.ToBytes(raw.Data, x.Data, format.BF16); err != nil {
			b.Fatal(err)
		}
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Tensor, FP8Row, FP8Vec128, FP8Block} {
			amax := Amax(x, 1)
			with := With{Threads: 1}
			if f.Global {
				with.Amax = &amax
			}
			with.Into = must(b)(Quantizer{Format: f}.Rowwise(x, with))
			for _, from := range []struct {
				name string
				size int
				run  func() (*Tensor, error)
			}{
				{"f32", 4, func() (*Tensor, error) { return Quantizer{Format: f}.Rowwise(x, with) }},
				{"bf16", 2, func() (*Tensor, error) { return Quantizer{Format: f}.RowwiseBF16(raw, with) }},
			} {
				b.Run(fmt.Sprintf("format=%s/from=%s/rows=%d/cols=%d", f, from.name, shape.rows, shape.cols), func(b *testing.B) {
					b.SetBytes(int64(from.size * len(x.Data)))
					for b.Loop() {
						must(b)(from.run())
					}
				})
			}
		}
	}
}

// BenchmarkTraining has what only training and studies ask for, of a source that
// stays in the second-level cache.
func BenchmarkTraining(b *testing.B) {
	x := benchMatrix(64, 1024)
	amax := Amax(x, 1)
	benchTiers(b, func(b *testing.B) {
		for _, v := range []struct {
			name      string
			direction func(Quantizer, tensor.Dense, With) (*Tensor, error)
			q         Quantizer
		}{
			{"columnwise", Quantizer.Columnwise, Quantizer{Format: MXFP8}},
			{"columnwise", Quantizer.Columnwise, Quantizer{Format: NVFP4}},
			{"square", Quantizer.Rowwise, Quantizer{Format: NVFP4x16}},
			{"square", Quantizer.Rowwise, Quantizer{Format: MXFP8x32}},
			{"stochastic", Quantizer.Rowwise, Quantizer{Format: NVFP4, Rounding: format.Stochastic}},
			{"stochastic", Quantizer.Rowwise, Quantizer{Format: MXFP8, Rounding: format.Stochastic}},
			{"hadamard", Quantizer.Columnwise, Quantizer{Format: NVFP4, Hadamard: true}},
			{"search", Quantizer.Rowwise, Quantizer{Format: MXFP4, Search: LeastSquares}},
		} {
			b.Run(fmt.Sprintf("format=%s/how=%s", v.q.Format, v.name), func(b *testing.B) {
				b.SetBytes(int64(4 * len(x.Data)))
				with := With{Threads: 1, Random: &Stream{Seed: 1}}
				if v.q.Format.Global {
					with.Amax = &amax
				}
				for b.Loop() {
					with.Into = must(b)(v.direction(v.q, x, with))
				}
			})
		}
	})
}

// BenchmarkDequantize counts the bytes of the values that are written.
func BenchmarkDequantize(b *testing.B) { benchTiers(b, benchmarkDequantize) }

func benchmarkDequantize(b *testing.B) {
	for _, shape := range benchShapes {
		x := benchMatrix(shape.rows, shape.cols)
		for _, f := range []Format{MXFP8, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Row, FP8Block} {
			b.Run(fmt.Sprintf("format=%s/rows=%d/cols=%d", f, shape.rows, shape.cols), func(b *testing.B) {
				b.SetBytes(int64(4 * len(x.Data)))
				q, err := Quantizer{Format: f}.Rowwise(x, With{Threads: 1})
				if err != nil {
					b.Fatal(err)
				}
				values := tensor.New(shape.rows, shape.cols)
				for b.Loop() {
					q.DequantizeRows(values, 0, 1)
				}
			})
		}
	}
}
