package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// FuzzRowwiseColumnwise compares the copies of a matrix by any two quantizers, with any options, with the
// reference. The seed determines everything.
func FuzzRowwiseColumnwise(f *testing.F) {
	for seed := uint64(0); seed < 100; seed += uint64(slow.Stride(1, 2)) {
		f.Add(seed)
	}
	f.Add(uint64(519)) // used tensors, of blocks of 128 that columns end within
	quantizers := append(behaviors(), kernelQuantizers()...)
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 31))
		rows, cols, before := r.IntN(200), r.IntN(200), r.IntN(5)
		wide := []*int{&rows, &cols}[r.IntN(2)]
		*wide *= 1 + r.IntN(8)*r.IntN(2)
		row, col := anyCopy(quantizers, r), anyCopy(quantizers, r)
		if r.IntN(3) == 0 {
			col = row
		}
		if row.Quantizer.Hadamard {
			cols -= cols % hadamardSize
		}
		if col.Quantizer.Hadamard {
			rows -= rows % hadamardSize
		}
		x := tensor.New(rows, before+cols)
		edgeBlocks(x.Data, r, r.IntN(2) == 0)
		raw := bf16Bytes(x.Data)
		view := x.View(0, rows, before, before+cols)
		narrow := tensor.BF16{Rows: rows, Cols: cols, Stride: before + cols, Data: raw[min(2*before, len(raw)):]}
		wantRows := specified(t, row.Quantizer, denseSource(view), Rowwise, row.With)
		wantColumns := specified(t, col.Quantizer, denseSource(view), Columnwise, col.With)
		row.With.Threads = r.IntN(4)
		row.With.Into, col.With.Into = used(wantRows, r), used(wantColumns, r)
		checkRow, checkCol := collectScales(&row), collectScales(&col)

		best := cpu.Best()
		if err := cpu.Force(cpu.Tiers()[r.IntN(len(cpu.Tiers()))]); err != nil {
			t.Fatal(err)
		}
		gotRows, gotColumns, err := RowwiseColumnwise(view, row, col)
		if r.IntN(2) == 0 {
			checkRow, checkCol = collectScales(&row), collectScales(&col)
			gotRows, gotColumns, err = RowwiseColumnwise(narrow, row, col)
		}
		tier := cpu.Best()
		if err := cpu.Force(best); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d×%d, %s: %+v and %+v", rows, cols, tier, row, col)
		if err != nil {
			t.Fatal(err)
		}
		sameTensor(t, gotRows, wantRows)
		sameTensor(t, gotColumns, wantColumns)
		checkRow(t, gotRows)
		checkCol(t, gotColumns)
	})
}

// anyCopy returns one by any of the quantizers, with options besides that go with it.
func anyCopy(quantizers []Quantizer, r *rand.Rand) (c Copy) {
	for c.Quantizer = quantizers[r.IntN(len(quantizers))]; ; {
		q := c.Quantizer
		q.Hadamard, q.NonFinite = r.IntN(3) == 0, NonFinite(r.IntN(int(PoisonZero)+1))
		if r.IntN(3) == 0 {
			q.Rounding = format.Stochastic
		}
		if r.IntN(8) == 0 {
			q.Search = LeastSquares
		}
		if q.Validate() == nil {
			c.Quantizer = q
			break
		}
	}
	c.With = With{Random: &Stream{Seed: r.Uint64()}, FirstRow: r.IntN(1000), NaN: r.IntN(8) == 0}
	given := 0.1 + 10*r.Float32()
	switch f := c.Quantizer.Format; r.IntN(6) {
	case 0:
		c.With.Amax = &given
	case 1:
		if f.PerTensor() && f.Scale == format.F32 || f.Global && !c.Quantizer.Arithmetic.FixesGlobal() {
			c.With.Inverse = &given
		}
	}
	return c
}

// used returns a tensor like t with other contents, or nil.
func used(t *Tensor, r *rand.Rand) *Tensor {
	if r.IntN(2) == 0 {
		return nil
	}
	u := newTensor(t.Format, t.Direction, t.Rows(), t.Cols())
	for i := range u.Codes {
		u.Codes[i] = byte(r.Uint32())
	}
	for i := range u.Scales {
		u.Scales[i] = byte(r.Uint32())
	}
	for i := range u.Scales32 {
		u.Scales32[i] = r.Float32()
	}
	u.Global, u.Amax = 77, 88
	return u
}
