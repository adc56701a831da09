package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// Sizes of the whole layer: two ranks have whole blocks of 128.
const dividedIn, dividedPart = 256, 256

// A dividedPass is a forward and a backward pass of a rank, or of one process.
type dividedPass struct {
	y, dx    tensor.Dense
	dw       []tensor.Dense // by parameter
	operands []Observation
	products []Product
}

// dividedInputs returns the input and the gradient of the output of a step, of as few tokens as two
// ranks can divide.
func dividedInputs(r *recipe.Recipe, step int) (x, dy tensor.Dense) {
	rng := rand.New(rand.NewPCG(9, uint64(step)))
	n, _ := r.PartMultiple()
	tokens := 2 * max(n, 16)
	return matrix(rng, tokens, dividedIn, 1), matrix(rng, tokens, 2*dividedPart, 1e-3)
}

// runDivided returns two steps of a fused layer whose parts ranks have; by is 0 for one process.
func runDivided(s Scope, by Split) (passes []dividedPass, err error) {
	n, in, part := s.Ranks.Size(), dividedIn, dividedPart
	switch by {
	case SplitOutputs:
		part /= n
	case SplitInputs:
		in /= n
	}
	l := NewFusedLinear(layerName, in, false, Part{"a", part}, Part{"b", part})
	if by != 0 {
		if err := l.Divide(by, s.Ranks.Rank(), n); err != nil {
			return nil, err
		}
	}
	for _, p := range l.Params() {
		p.InitNormal(0.05, 3)
	}
	for step := range 2 {
		x, dy := dividedInputs(&s.Recipe, step)
		x, dy = l.partOf(&s, Input, x), l.partOf(&s, Grad, dy)
		s.Random.Step = uint32(step)
		var p dividedPass
		s.Observer.Operand = func(o Observation) { p.operands = append(p.operands, o) }
		s.Observer.Product = func(q Product) { p.products = append(p.products, q) }
		y, saved, err := l.Forward(&s, x)
		if err != nil {
			return nil, err
		}
		p.y = y
		if err := ReduceAmaxes(&s, l.Amaxes(&s, false)); err != nil {
			return nil, err
		}
		l.EndForward(&s)
		if p.dx, err = l.Backward(&s, saved, dy); err != nil {
			return nil, err
		}
		if err := ReduceAmaxes(&s, l.Amaxes(&s, true)); err != nil {
			return nil, err
		}
		l.EndBackward(&s)
		for _, q := range l.Params() {
			p.dw = append(p.dw, q.Grad.Clone())
			q.ZeroGrad()
		}
		passes = append(passes, p)
	}
	return passes, nil
}

// partOf returns the part that a rank has of a whole operand.
func (l *Linear) partOf(s *Scope, o Operand, x tensor.Dense) tensor.Dense {
	if l.gathers(s, o) {
		return ownTokens(s.Ranks.Rank(), x)
	}
	c := l.columnsOf(o)
	if c == nil {
		return x
	}
	part := tensor.New(x.Rows, 0)
	for _, r := range c.Ranges {
		part = besides(part, x.View(0, x.Rows, r[0], r[1]))
	}
	return part
}

// ownTokens returns the rows of x that one of two ranks has.
func ownTokens(rank int, x tensor.Dense) tensor.Dense {
	return x.View(rank*x.Rows/2, (rank+1)*x.Rows/2, 0, x.Cols)
}

// besides returns the columns of two matrices side by side.
func besides(a, b tensor.Dense) tensor.Dense {
	c := tensor.New(b.Rows, a.Cols+b.Cols)
	for i := range b.Rows {
		copy(c.Row(i)[copy(c.Row(i), a.Row(i)):], b.Row(i))
	}
	return c
}

// TestDivided divides a layer among two ranks, by outputs and by inputs, under every recipe. Every
// operand has the values that one process gives it, and so do the products that are not sums over the
// ranks. Sums are within the bound of sumBound. With divided tokens, gathered operands are byte by
// byte those that one process quantizes. A short run makes one division of each recipe.
func TestDivided(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	for i, r := range recipe.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			if slices.Contains([]string{"f32", "bf16", "tensorwise", "blockwise", "mxfp4-rht-sr"}, r.Name) {
				slow.Race(t, "the other recipes have every division")
			}
			s := Scope{Recipe: r, Random: Random{Seed: 3, Microbatch: 5}, Threads: 1}
			whole, err := runDivided(s, 0)
			if err != nil {
				t.Fatal(err)
			}
			for j, by := range []Split{SplitOutputs, SplitInputs} {
				for k, sequence := range []bool{false, true} {
					if testing.Short() && 2*j+k != i%4 {
						continue
					}
					t.Run(fmt.Sprintf("split=%d/sequence=%t", by, sequence), func(t *testing.T) { compareDivided(t, s, by, sequence, whole) })
				}
			}
		})
	}
}

// compareDivided divides the layer among two ranks, and compares each step with that of the whole layer.
func compareDivided(t *testing.T, s Scope, by Split, sequence bool, whole []dividedPass) {
	t.Helper()
	passes := make([][]dividedPass, 2)
	onRanks(t, &s, func(s *Scope) (err error) {
		s.Ranks.Sequence, s.ReduceAmax = sequence, s.Ranks.Group.Max
		passes[s.Ranks.Rank()], err = runDivided(*s, by)
		return err
	})
	for step, want := range whole {
		ranks := []dividedPass{passes[0][step], passes[1][step]}
		for rank, got := range ranks {
			what := fmt.Sprintf("step %d, rank %d", step, rank)
			checkDivided(t, what, by, rank, got, want)
			if sequence {
				checkGathered(t, what, by, got, want)
			} else {
				checkOperands(t, what, by, rank, got, want)
			}
		}
		checkSum(t, by, sequence, ranks, s.Recipe)
	}
}

// ownColumns returns functions of the columns, and of the rows, that a rank has of the dimension of the
// layer that is divided.
func ownColumns(t *testing.T, by Split, rank int) (columns, rows func(tensor.Dense) tensor.Dense) {
	t.Helper()
	l := NewFusedLinear(layerName, dividedIn/2, false, Part{"a", dividedPart / 2}, Part{"b", dividedPart / 2})
	if err := l.Divide(by, rank, 2); err != nil {
		t.Fatal(err)
	}
	columns = func(x tensor.Dense) tensor.Dense {
		part := tensor.New(x.Rows, 0)
		for _, r := range l.columns.Ranges {
			part = besides(part, x.View(0, x.Rows, r[0], r[1]))
		}
		return part
	}
	return columns, func(x tensor.Dense) tensor.Dense { return columns(x.Transpose()).Transpose() }
}

// checkDivided compares what a rank has with its part of the whole.
func checkDivided(t *testing.T, what string, by Split, rank int, got, want dividedPass) {
	t.Helper()
	columns, _ := ownColumns(t, by, rank)
	if by == SplitOutputs {
		if !sameData(got.y, columns(want.y)) {
			t.Errorf("%s: Y differs", what)
		}
	} else if !sameData(got.dx, columns(want.dx)) {
		t.Errorf("%s: dX differs", what)
	}
	for i := range got.dw {
		part := columns
		if by == SplitOutputs { // rows of each part
			part = func(x tensor.Dense) tensor.Dense { return ownTokens(rank, x) }
		}
		if !sameData(got.dw[i], part(want.dw[i])) {
			t.Errorf("%s: dW of part %d differs", what, i)
		}
	}
}

// checkGathered compares the operand that is gathered, in both products that take it, with that of one
// process.
func checkGathered(t *testing.T, what string, by Split, got, want dividedPass) {
	t.Helper()
	for _, o := range got.operands { // of the tokens of the rank
		if v := valuesOf(o); o.Direction == quant.Columnwise && o.Quantized.Direction == quant.Rowwise &&
			(v.Rows != o.Source.Rows || v.Cols != o.Source.Cols) {
			t.Errorf("%s: the observed %s %s is not transposed", what, o.Direction, o.Operand)
		}
	}
	for i, p := range got.products {
		w := want.products[i]
		if p.GEMM != w.GEMM {
			t.Fatalf("%s: product %d is %s, want %s", what, i, p.GEMM, w.GEMM)
		}
		a, b := p.A, w.A // X of fprop, dY of dgrad and wgrad
		switch {
		case by == SplitOutputs && p.GEMM == recipe.Wgrad: // X
			a, b = p.B, w.B
		case by == SplitOutputs && p.GEMM == recipe.Dgrad, by == SplitInputs && p.GEMM == recipe.Fprop:
			continue
		}
		if !sameBits(a, b) {
			t.Errorf("%s: the gathered operand of %s differs from that of one process", what, p.GEMM)
		}
	}
}

// checkOperands compares the operands of a rank with its part of those of one process.
func checkOperands(t *testing.T, what string, by Split, rank int, got, want dividedPass) {
	t.Helper()
	columns, rows := ownColumns(t, by, rank)
	same := func(x tensor.Dense) tensor.Dense { return x }
	if len(got.operands) != len(want.operands) {
		t.Fatalf("%s: %d operands, want %d", what, len(got.operands), len(want.operands))
	}
	parts := map[Split]map[Operand]func(tensor.Dense) tensor.Dense{
		SplitOutputs: {Input: same, Weight: rows, Grad: columns},
		SplitInputs:  {Input: columns, Weight: columns, Grad: same},
	}
	for i, o := range got.operands {
		w := want.operands[i]
		if !sameData(valuesOf(o), parts[by][o.Operand](valuesOf(w))) {
			t.Errorf("%s: %s %s has other values than in one process", what, o.Direction, o.Operand)
		}
	}
}

// valuesOf returns the values of an operand in the orientation of its source: a columnwise copy may be
// a transposed rowwise one.
func valuesOf(o Observation) tensor.Dense {
	x := o.Quantized.Dequantize(1)
	if o.Direction != o.Quantized.Direction {
		return x.Transpose()
	}
	return x
}

// checkSum compares a sum over the ranks with a float64 emulation from the quantized operands.
func checkSum(t *testing.T, by Split, sequence bool, ranks []dividedPass, r recipe.Recipe) {
	t.Helper()
	a, b, g := ranks[0].y, ranks[1].y, recipe.Fprop
	if by == SplitOutputs {
		a, b, g = ranks[0].dx, ranks[1].dx, recipe.Dgrad
	}
	got := a
	if sequence {
		got = besides(a.Transpose(), b.Transpose()).Transpose()
	} else if !sameData(a, b) {
		t.Error("the ranks have different sums")
	}
	epsilon := 0x1p-8 // relative rounding error of BF16, which has 8 significant bits
	if r.Activations.Element == format.F32 {
		epsilon = 0x1p-24
	}
	n := got.Rows * got.Cols
	sum, partials, products := make([]float64, n), make([]float64, n), make([]float64, n)
	for _, rank := range ranks {
		for _, p := range rank.products {
			if p.GEMM != g {
				continue
			}
			a, b := p.A.Dequantize(1), p.B.Dequantize(1)
			if p.B.Direction == quant.Columnwise {
				b = b.Transpose()
			}
			for i := range got.Rows {
				for j := range got.Cols {
					var exact, magnitude float64
					for k, v := range a.Row(i) {
						exact += float64(v) * float64(b.Row(j)[k])
						magnitude += math.Abs(float64(v) * float64(b.Row(j)[k]))
					}
					at := i*got.Cols + j
					sum[at] += exact
					partials[at] += math.Abs(exact)
					products[at] += 0x1p-24 * float64(a.Cols) * magnitude // float32 accumulation
				}
			}
		}
	}
	for i, v := range got.Data {
		if bound := sumBound(partials[i], products[i], epsilon); !(math.Abs(float64(v)-sum[i]) <= bound) {
			t.Fatalf("%s: element %d is %g, want %g within %g", g, i, v, sum[i], bound)
		}
	}
}

// sumBound is the bound of the documents: each partial sum is rounded, and their sum again, which
// is at most 2ε·Σ|partials|; and the errors of the products.
func sumBound(partials, products, epsilon float64) float64 {
	whole := partials + products
	return products + 2*epsilon*whole*(1+epsilon) + 0x1p-23*whole
}
