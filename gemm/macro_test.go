package gemm

import (
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestMacroTwin checks that macro-kernels give the bits of their portable twin, for any shape
// of C. Panels and C end, or begin, at inaccessible pages.
func TestMacroTwin(t *testing.T) {
	for _, k := range kernels {
		if k.macro == nil || k.isTwin() {
			continue
		}
		if !cpu.Has(k.needs) {
			t.Skipf("kernel %s needs %s", k.Name, k.needs)
		}
		plain := twin(k)
		for trial := range 60 {
			r := rand.New(rand.NewPCG(uint64(trial), 2))
			chunks, tiles := 1+r.IntN(3), 1+r.IntN(20)
			rows, columns := 1+r.IntN(70), 1+r.IntN(k.NR)
			edges := []float64{0, 0.1, 1}[trial%3]
			side := guard.Side(trial / 3 % 2)
			panels := func(n int) ([]byte, int) {
				bytes := chunks * (tiles*tileSteps + 1) * k.Lanes * 4
				all := guard.Bytes(t, n*bytes, side)
				for i := range n {
					randomPanel(r, all[i*bytes:(i+1)*bytes], k, chunks, tiles*tileSteps, false, edges)
				}
				return all, bytes
			}
			a, aPanel := panels(ceilDiv(rows, k.Lanes))
			b, bPanel := panels(ceilDiv(columns, k.Lanes))
			ldc := columns + trial%2*3
			size := (rows-1)*ldc + columns
			c := unsafe.Slice((*float32)(unsafe.Pointer(&guard.Bytes(t, 4*size, side)[0])), size)
			accumulate := trial/6%2 == 1
			for i := range c {
				c[i] = float32(r.NormFloat64())
				if !accumulate {
					c[i] = float32(math.NaN())
				}
			}
			want := append([]float32(nil), c...)
			alpha := float32(r.NormFloat64())
			run := func(k *kernel, c []float32) {
				w := worker{job: &job{plan: plan{kernel: k, alpha: alpha}, c: tensor.Dense{Data: c, Stride: ldc}}, a: a, chunks: chunks,
					steps: tiles * tileSteps, aPanel: aPanel, bPanel: bPanel,
					sums: make([]float32, k.MR*(k.NR+1)), running: make([]float32, rows*k.NR)}
				w.macroTile(0, 0, rows, columns, b, accumulate)
			}
			run(k, c)
			run(plain, want)
			for i := range c {
				if math.Float32bits(c[i]) != math.Float32bits(want[i]) && !(c[i] != c[i] && want[i] != want[i]) {
					t.Fatalf("kernel=%s chunks=%d tiles=%d rows=%d columns=%d edges=%g accumulate=%v: C[%d]: got %x (%g), want %x (%g)",
						k.Name, chunks, tiles, rows, columns, edges, accumulate, i, math.Float32bits(c[i]), c[i], math.Float32bits(want[i]), want[i])
				}
			}
		}
	}
}

// TestStreamThreads checks that a C written with non-temporal stores has the bits of one that is not
// because its rows are not aligned to cache lines, and that memory between its rows is
// unchanged. K exceeds KC, in several chunks.
func TestStreamThreads(t *testing.T) {
	const m, n, k, stride = 1200, 1776, 2100, 1792
	if 4*m*n <= streamBytes {
		t.Fatal("C is too small")
	}
	r := rand.New(rand.NewPCG(16, 17))
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, m, k), operand(t, r, quant.FP8Row, quant.Rowwise, n, k)
	for _, kernel := range kernels {
		if kernel.stream == nil {
			continue
		}
		if !cpu.Has(kernel.needs) {
			t.Skipf("kernel %s needs %s", kernel.Name, kernel.needs)
		}
		for _, accumulate := range []bool{false, true} {
			past, other := tensor.Dense{Rows: m, Cols: n, Stride: stride, Data: make([]float32, m*stride)},
				tensor.Dense{Rows: m, Cols: n, Stride: n + 1, Data: make([]float32, m*(n+1))}
			for i := range m {
				for j := range stride {
					past.Data[i*stride+j] = float32(j % 5)
				}
				copy(other.Row(i), past.Row(i))
			}
			for _, c := range []tensor.Dense{past, other} {
				if err := Mul(c, a, b, Options{Kernel: kernel.Name, Threads: 2, Accumulate: accumulate}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range m {
				if !sameBits(past.Row(i), other.Row(i)) {
					t.Fatalf("accumulate=%v: row %d differs", accumulate, i)
				}
				for j := n; j < stride; j++ {
					if past.Data[i*stride+j] != float32(j%5) {
						t.Fatalf("accumulate=%v: write past the end of row %d", accumulate, i)
					}
				}
			}
		}
	}
}

// TestMacroThreads checks that concurrent goroutines that use AMX tiles, more of them than
// threads and often stopped by the garbage collector, get the bits of a single one.
func TestMacroThreads(t *testing.T) {
	if !cpu.Has(cpu.AMX.Set()) {
		t.Skip("this processor has no tiles")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	const m, n, k = 70, 100, 2100
	o := Options{Kernel: "bf16-amx", Threads: 1}
	r := rand.New(rand.NewPCG(14, 15))
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, m, k), operand(t, r, quant.FP8Row, quant.Rowwise, n, k)
	want := tensor.New(m, n)
	if err := Mul(want, a, b, o); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(macroThreadsTime)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for round := 0; round < 5 || time.Now().Before(end); round++ {
				c := tensor.New(m, n)
				if err := Mul(c, a, b, o); err != nil || !sameBits(c.Data, want.Data) {
					t.Errorf("round %d: bits differ or error %v", round, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// macroThreadsTime is the duration of TestMacroThreads.
var macroThreadsTime = 100 * time.Millisecond
