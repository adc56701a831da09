package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// TestVectorInPlace checks that vector kernels read rows in place, partial groups of blocks and
// partial steps included, unless the next rows are missing or have codes that are not finite.
func TestVectorInPlace(t *testing.T) {
	const n = vectorRows + 32
	for _, k := range kernels {
		v := k.vector
		if v == nil || v.single == nil || !cpu.Has(k.needs) {
			continue
		}
		ran := 0
		for i, f := range formats {
			for _, width := range []int{32, 192, 576, 1152} {
				r := rand.New(rand.NewPCG(uint64(i), uint64(width)))
				if f.Block.Rows > 1 || f.Element.StoredBits() != v.bits || width%v.step != 0 && !allFinite(f.Element) {
					continue
				}
				a, b := operand(t, r, quant.MXINT8, quant.Rowwise, 1, width), operand(t, r, f, quant.Rowwise, n, width)
				p, why := k.plan(a, b, rowMajor, Options{})
				if why != "" {
					continue
				}
				ran++
				j := jobs.New().(*job)
				j.plan, j.cols, j.threads = p, extent{0, p.n}, 1
				j.reserve()
				w := j.workers[0]
				w.vectorTask(0, vectorRows)
				if len(w.tail) > 0 {
					t.Errorf("kernel=%s format=%s k=%d: got %d bytes of copied rows", k.Name, f, width, len(w.tail))
				}
			}
		}
		if ran == 0 {
			t.Errorf("kernel=%s supports no format", k.Name)
		}
	}
}

// TestVectorNextRow checks that codes and scales of a row that kernels do not support change no
// other row, although kernels read them with the row before.
func TestVectorNextRow(t *testing.T) {
	for i, f := range formats {
		if f.Element.StoredBits() > 8 || f.Block.Rows != 1 {
			continue
		}
		for _, width := range []int{32, 288, 576} {
			for _, with := range []quant.Format{quant.BF16, quant.MXINT8, quant.F32} {
				r := rand.New(rand.NewPCG(uint64(i), uint64(width)))
				a, b := operand(t, r, with, quant.Rowwise, 2, width), operand(t, r, f, quant.Rowwise, 40, width)
				codes, scales := b.RowBytes(), len(b.Scales)/b.StoredRows()
				for l := 5; l < b.StoredRows(); l += 7 {
					if f.Element.StoredBits() == 8 {
						b.Codes[l*codes] = 0x7f // NaN of float8
					}
					if scales > 0 {
						b.Scales[l*scales] = 0xff // NaN
					}
				}
				for _, k := range kernels {
					if k.vector == nil || k.vector.interleaved != nil || !cpu.Has(k.needs) {
						continue
					}
					if _, why := k.plan(a, b, rowMajor, Options{}); why != "" {
						continue
					}
					compare(t, a, b, Options{Kernel: k.Name, Threads: 1})
				}
			}
		}
	}
}

// TestVectorBlocks checks that BF16 products read codes in FP32 blocks of 128 as they are stored.
func TestVectorBlocks(t *testing.T) {
	if !cpu.Has(cpu.AVX512.Set()) {
		t.Skip("this processor has no BF16 kernels")
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, f := range []quant.Format{quant.FP8Block, quant.FP8Vec128} {
		for _, width := range []int{64, 576, 1024, 2112} {
			a, b := operand(t, r, quant.BF16, quant.Rowwise, 3, width), operand(t, r, f, quant.Rowwise, 257, width)
			k, err := Choose(a, b, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if want := "vector-fp8-block128-avx512"; k.Name != want {
				t.Errorf("format=%s: got kernel %s, want %s", f, k.Name, want)
			}
			compare(t, a, b, Options{Threads: 2})
		}
	}
}

// TestTaskRows checks that every thread has several tasks of a small matrix, and tasks of a large one
// are large.
func TestTaskRows(t *testing.T) {
	for _, x := range []struct{ rows, threads, want int }{{576, 1, 64}, {200, 1, 64}, {576, 2, 32}, {1536, 2, 64}, {200, 2, 16}, {9, 4, 16},
		{1536, 8, 16}, {49152, 8, 64}} {
		j := job{cols: extent{0, x.rows}, threads: x.threads}
		if got := j.taskRows(); got != x.want {
			t.Errorf("%d rows, %d threads: got %d rows in a task, want %d", x.rows, x.threads, got, x.want)
		}
	}
}
