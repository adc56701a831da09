package nn

import (
	"bytes"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// matrix returns BF16 values of several magnitudes with zeros and outliers. Rows and columns differ in
// magnitude, and so do blocks.
func matrix(rng *rand.Rand, rows, cols int, std float64) tensor.Dense {
	x := tensor.New(rows, cols)
	for i := range rows {
		scale := std * math.Exp2(float64(rng.IntN(6)-3))
		for j := range cols {
			v := rng.NormFloat64() * scale
			switch rng.IntN(40) {
			case 0:
				v = 0
			case 1:
				v *= 16
			case 2:
				v *= 1e-4
			}
			x.Set(i, j, float32(v))
		}
	}
	roundBF16(x.Data)
	return x
}

// A step is a forward and a backward pass of one layer with everything observable.
type step struct {
	x, w, b, dy       tensor.Dense
	y, dx, dw, db     tensor.Dense
	products          []Product
	observed          []Observation
	savedBytes        int
	layer             *Linear
	scope             Scope
	startGrad, startB float32 // gradients before the step
}

const layerName = "layers.3.mlp.down_proj"

func runStep(t *testing.T, s Scope, tokens, in, out int, options ...func(*Linear)) *step {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 11))
	st := &step{x: matrix(rng, tokens, in, 1), dy: matrix(rng, tokens, out, 1e-3), layer: NewLinear(layerName, in, out, true),
		startGrad: 0.125, startB: 0.5}
	for _, option := range options {
		option(st.layer)
	}
	st.layer.Weight.InitNormal(0.05, 3)
	st.layer.Bias.InitNormal(1, 4)
	st.w, st.b = st.layer.Weight.Value.Clone(), st.layer.Bias.Value.Clone()
	for i := range st.layer.Weight.Grad.Data {
		st.layer.Weight.Grad.Data[i] = st.startGrad
	}
	for i := range st.layer.Bias.Grad.Data {
		st.layer.Bias.Grad.Data[i] = st.startB
	}
	s.Observer.Product = func(p Product) { st.products = append(st.products, p) }
	s.Observer.Operand = func(o Observation) { st.observed = append(st.observed, o) }
	st.scope = s
	y, saved, err := st.layer.Forward(&s, st.x)
	if err != nil {
		t.Fatal(err)
	}
	st.savedBytes = saved.Bytes()
	st.y = y
	if st.dx, err = st.layer.Backward(&s, saved, st.dy); err != nil {
		t.Fatal(err)
	}
	st.dw, st.db = st.layer.Weight.Grad, st.layer.Bias.Grad
	return st
}

// model holds the six operands by the table of Transformer Engine's documents, made with package quant
// only.
type model struct{ xr, xc, wr, wc, gr, gc *quant.Tensor }

// An operandMaker returns the two operands of a matrix.
type operandMaker func(x tensor.Dense, role uint8) (row, col *quant.Tensor)

func must(t *quant.Tensor, err error) *quant.Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

// transposed: the columnwise operand is the transpose of the rowwise bytes.
func transposed(q quant.Quantizer) operandMaker {
	return func(x tensor.Dense, _ uint8) (row, col *quant.Tensor) {
		row = must(q.Rowwise(x, quant.With{}))
		return row, must(row.Transpose())
	}
}

// independent: both are quantized from the source.
func independent(r, c quant.Quantizer) operandMaker {
	return func(x tensor.Dense, role uint8) (row, col *quant.Tensor) {
		h := fnv.New32a()
		h.Write([]byte(layerName))
		stream := quant.Stream{Seed: testSeed, Step: testStep, Tensor: h.Sum32() & 0xffffff, Operand: role}
		row = must(r.Rowwise(x, quant.With{Random: &stream}))
		stream.Direction = quant.Columnwise
		return row, must(c.Columnwise(x, quant.With{Random: &stream}))
	}
}

const (
	testSeed = 5
	testStep = 9
)

// models has the operands of X, W and dY under each recipe.
var models = func() map[string][3]operandMaker {
	q := func(f quant.Format) quant.Quantizer { return quant.Quantizer{Format: f} }
	each := func(m operandMaker) [3]operandMaker { return [3]operandMaker{m, m, m} }
	mx := func(f quant.Format) [3]operandMaker { return each(independent(q(f), q(f))) }
	e5m2 := quant.Quantizer{Format: quant.Format{Name: "e5m2", Element: format.E5M2, Scale: format.F32}}
	vec, block := quant.Quantizer{Format: quant.FP8Vec128, PowerOfTwo: true}, quant.Quantizer{Format: quant.FP8Block, PowerOfTwo: true}
	sr := func(q quant.Quantizer) quant.Quantizer { q.Rounding = format.Stochastic; return q }
	rht := func(q quant.Quantizer) quant.Quantizer { q.Hadamard = true; return q }
	nv, mx4 := q(quant.NVFP4), q(quant.MXFP4)
	return map[string][3]operandMaker{
		"f32":          each(transposed(q(quant.F32))),
		"bf16":         each(transposed(q(quant.BF16))),
		"tensorwise":   {transposed(q(quant.FP8Tensor)), transposed(q(quant.FP8Tensor)), transposed(e5m2)},
		"blockwise":    {independent(vec, vec), transposed(block), independent(vec, vec)},
		"mxfp8":        mx(quant.MXFP8),
		"mxfp6":        mx(quant.MXFP6E2M3),
		"mxfp4":        mx(quant.MXFP4),
		"nvfp4":        {independent(nv, rht(nv)), transposed(q(quant.NVFP4x16)), independent(sr(nv), rht(sr(nv)))},
		"mxfp4-rht-sr": {independent(mx4, rht(mx4)), independent(mx4, rht(mx4)), independent(rht(sr(mx4)), rht(sr(mx4)))},
	}
}()

func (st *step) model(name string) model {
	// delayed scaling begins with scale 1
	makers, ok := models[name]
	if name == "delayed" {
		one := float32(1)
		at1 := func(e *format.Scalar) operandMaker {
			return func(x tensor.Dense, _ uint8) (row, col *quant.Tensor) {
				row = must(quant.Quantizer{Format: quant.Format{Element: e, Scale: format.F32}}.Rowwise(x, quant.With{Inverse: &one}))
				return row, must(row.Transpose())
			}
		}
		makers, ok = [3]operandMaker{at1(format.E4M3), at1(format.E4M3), at1(format.E5M2)}, true
	}
	if !ok {
		panic("no model of the recipe " + name)
	}
	w := st.w.Clone()
	if name != "f32" {
		roundBF16(w.Data)
	}
	var m model
	m.xr, m.xc = makers[0](st.x, 0)
	m.wr, m.wc = makers[1](w, 1)
	m.gr, m.gc = makers[2](st.dy, 2)
	return m
}

func sameBits(a, b *quant.Tensor) bool {
	return a.Format.Element == b.Format.Element && a.Format.Block == b.Format.Block && a.StoredRows() == b.StoredRows() &&
		a.StoredCols() == b.StoredCols() &&
		math.Float32bits(a.Global) == math.Float32bits(b.Global) &&
		bytes.Equal(a.Codes, b.Codes) && bytes.Equal(a.ScaleBytes(), b.ScaleBytes())
}

// TestLinear compares each recipe with the model: the operands of the three products bit by bit, and
// the results with float64, within the bound of accumulation and rounding.
func TestLinear(t *testing.T) {
	const tokens, in, out = 96, 160, 64
	for _, r := range recipe.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			st := runStep(t, Scope{Recipe: r, Random: Random{Seed: testSeed, Step: testStep}}, tokens, in, out)
			m := st.model(r.Name)
			if len(st.products) != 3 {
				t.Fatalf("got %d products, want fprop, dgrad and wgrad", len(st.products))
			}
			for i, want := range []struct{ a, b *quant.Tensor }{{m.xr, m.wr}, {m.gr, m.wc}, {m.gc, m.xc}} {
				p := st.products[i]
				if p.GEMM != recipe.GEMM(i) || p.Module != layerName {
					t.Errorf("product %d: got %s of %s", i, p.GEMM, p.Module)
				}
				if !sameBits(p.A, want.a) || !sameBits(p.B, want.b) {
					t.Errorf("%s: operands %v and %v differ from those of quant", p.GEMM, p.A.Format, p.B.Format)
				}
			}
			high := r.Name == "f32"
			bias := st.b.Clone()
			if !high {
				roundBF16(bias.Data)
			}
			checkProduct(t, "y", st.y, m.xr, m.wr, func(_, j int) float64 { return float64(bias.Data[j]) }, !high)
			checkProduct(t, "dx", st.dx, m.gr, m.wc, nil, !high)
			checkProduct(t, "dw", st.dw, m.gc, m.xc, func(int, int) float64 { return float64(st.startGrad) }, false)
			for j := range out {
				var sum, size float64
				for i := range tokens {
					sum += float64(st.dy.At(i, j))
					size += math.Abs(float64(st.dy.At(i, j)))
				}
				want := sum + float64(st.startB)
				if got := float64(st.db.At(0, j)); math.Abs(got-want) > 0x1p-23*(size+math.Abs(want)) {
					t.Errorf("db[%d]: got %g, want %g", j, got, want)
				}
			}
		})
	}
}

// checkProduct compares got with the float64 product of two operands. The bound is that of package
// gemm, half a unit of the sum with the initial value, and half a unit of BF16 if the result is
// rounded.
func checkProduct(t *testing.T, name string, got tensor.Dense, a, b *quant.Tensor, added func(i, j int) float64, rounded bool) {
	t.Helper()
	av, bv := tensor.New(a.StoredRows(), a.StoredCols()), tensor.New(b.StoredRows(), b.StoredCols())
	a.DequantizeRows(av, 0, 1)
	b.DequantizeRows(bv, 0, 1)
	if got.Rows != av.Rows || got.Cols != bv.Rows {
		t.Fatalf("%s: got %d×%d, want %d×%d", name, got.Rows, got.Cols, av.Rows, bv.Rows)
	}
	k := float64(a.StoredCols())
	for i := range got.Rows {
		for j := range got.Cols {
			var want, size float64
			for l, x := range av.Row(i) {
				p := float64(x) * float64(bv.At(j, l))
				want += p
				size += math.Abs(p)
			}
			if added != nil {
				want += added(i, j)
				size += math.Abs(added(i, j))
			}
			bound := (k+8)*0x1p-23*size + (k+8)*0x1p-126
			if rounded {
				bound += 0x1p-8 * (math.Abs(want) + bound) // 8 significant bits
				if b := math.Float32bits(got.At(i, j)); b&0xffff != 0 {
					t.Fatalf("%s[%d,%d]: got %g, want a BF16 value", name, i, j, got.At(i, j))
				}
			}
			if g := float64(got.At(i, j)); !(math.Abs(g-want) <= bound) {
				t.Fatalf("%s[%d,%d]: got %g, want %g ± %g", name, i, j, g, want, bound)
			}
		}
	}
}

// TestEveryProductIsQuantized checks that a layer returns the bits of package gemm's products of the
// observed operands, and that every operand has the recipe's format. High-precision products use
// BF16.
func TestEveryProductIsQuantized(t *testing.T) {
	slow.Race(t, slow.Repeats)
	slow.Emulated(t, "which operands are quantized does not depend on kernels")
	var cases []recipe.Recipe
	for _, r := range recipe.Recipes() {
		cases = append(cases, r)
		for _, g := range []string{"fprop", "dgrad", "wgrad", "all"} {
			if err := r.Set("high_precision", g); err != nil {
				t.Fatal(err)
			}
			cases = append(cases, r)
		}
	}
	for _, r := range cases {
		st := runStep(t, Scope{Recipe: r}, 64, 64, 96)
		if len(st.products) != 3 {
			t.Fatalf("%s: got %d products, want 3", r.Name, len(st.products))
		}
		want := [3][2]quant.Format{
			{r.Input.Rowwise.Format, r.Weight.Rowwise.Format},
			{r.Grad.Rowwise.Format, r.Weight.Columnwise.Format},
			{r.Grad.Columnwise.Format, r.Input.Columnwise.Format},
		}
		for i, p := range st.products {
			if r.HighPrecision[i] {
				want[i] = [2]quant.Format{r.Activations, r.Activations}
			}
			if got := [2]quant.Format{p.A.Format, p.B.Format}; got[0].Name != want[i][0].Name || got[1].Name != want[i][1].Name {
				t.Errorf("%s: operands of %s: got %v, want %v", r.Name, p.GEMM, got, want[i])
			}
			for _, f := range want[i] {
				if f.Name == "f32" && r.Name != "f32" {
					t.Errorf("%s: %s has an operand in float32", r.Name, p.GEMM)
				}
			}
			got := []tensor.Dense{st.y, st.dx, st.dw}[i]
			c := tensor.New(got.Rows, got.Cols)
			o := gemm.Options{Accumulate: i == 2}
			switch i {
			case 0:
				bias := st.b.Clone()
				st.scope.Round(bias)
				o.Bias = bias.Data
			case 2:
				for k := range c.Data {
					c.Data[k] = st.startGrad
				}
			}
			if err := gemm.Mul(c, p.A, p.B, o); err != nil {
				t.Fatal(err)
			}
			if i < 2 {
				st.scope.Round(c)
			}
			if !slices.Equal(c.Data, got.Data) {
				t.Errorf("%s: the result of %s is not the product of its operands", r.Name, p.GEMM)
			}
		}
	}
}

// TestThreads checks that results do not depend on the number of goroutines, and that stochastic
// rounding draws other bits in another step or microbatch.
func TestThreads(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	for _, r := range recipe.Recipes() {
		one := runStep(t, Scope{Recipe: r, Random: Random{Seed: 1}, Threads: 1}, 128, 128, 128)
		four := runStep(t, Scope{Recipe: r, Random: Random{Seed: 1}, Threads: 4}, 128, 128, 128)
		if !slices.Equal(one.y.Data, four.y.Data) || !slices.Equal(one.dx.Data, four.dx.Data) || !slices.Equal(one.dw.Data, four.dw.Data) ||
			!slices.Equal(one.db.Data, four.db.Data) {
			t.Errorf("%s: results on one and four goroutines differ", r.Name)
		}
		stochastic := r.Grad.Rowwise.Rounding == format.Stochastic
		for name, key := range map[string]Random{"seed": {Seed: 2}, "step": {Seed: 1, Step: 1}, "microbatch": {Seed: 1, Microbatch: 1}} {
			if other := runStep(t, Scope{Recipe: r, Random: key}, 128, 128, 128); slices.Equal(one.dx.Data, other.dx.Data) == stochastic {
				t.Errorf("%s: another %s: stochastic rounding is %v, but gradients are equal: %v", r.Name, name, stochastic, !stochastic)
			}
		}
	}
}

// TestFused checks that the parts of a fused layer are rows of its weight.
func TestFused(t *testing.T) {
	l := NewFusedLinear("attn.qkv", 64, true, Part{"attn.q_proj", 64}, Part{"attn.k_proj", 32}, Part{"attn.v_proj", 32})
	var names []string
	for _, p := range l.Params() {
		names = append(names, p.Name)
		p.InitNormal(1, 1)
	}
	if got, want := strings.Join(names, " "), "attn.q_proj.weight attn.q_proj.bias attn.k_proj.weight attn.k_proj.bias attn.v_proj.weight "+
		"attn.v_proj.bias"; got != want {
		t.Errorf("parameters: got %s, want %s", got, want)
	}
	k := l.Params()[2]
	if k.Value.Rows != 32 || k.Value.At(3, 5) == 0 || k.Value.At(3, 5) != l.Weight.Value.At(64+3, 5) {
		t.Error("k_proj.weight is not rows 64 to 96 of the weight")
	}
	s := &Scope{Recipe: recipe.Recipes()[0]}
	rng := rand.New(rand.NewPCG(1, 2))
	y, saved, err := l.Forward(s, matrix(rng, 32, 64, 1))
	if err != nil || y.Cols != 128 {
		t.Fatal(y.Cols, err)
	}
	if _, err := l.Backward(s, saved, matrix(rng, 32, 128, 1)); err != nil {
		t.Fatal(err)
	}
	if k.Grad.At(3, 5) == 0 || k.Grad.At(3, 5) != l.Weight.Grad.At(67, 5) {
		t.Error("the gradient of k_proj is not rows 64 to 96 of the gradient")
	}
}

// TestShared checks that the columnwise copy of a shared operand is the transpose of the rowwise one, also
// in the memory of earlier copies and with random bits.
func TestShared(t *testing.T) {
	x := randomDense(rand.New(rand.NewPCG(7, 8)), 160, 96)
	for _, f := range []quant.Format{quant.F32, quant.BF16, quant.FP8Tensor, quant.FP8Block, quant.NVFP4x16} {
		for _, rounding := range []format.Rounding{format.NearestEven, format.Stochastic} {
			q := quant.Quantizer{Format: f, Rounding: rounding}
			if q.Validate() != nil {
				continue
			}
			l, pool := NewLinear("l", 96, 96, false), new(Pool)
			s := Scope{Recipe: recipe.Recipe{Grad: recipe.Operand{Rowwise: q, Columnwise: q}, Activations: quant.BF16}, Pool: pool}
			for step := range 3 {
				s.Random.Step = uint32(step)
				row, col, err := l.quantize(&s, Grad, x, true, true)
				if err != nil {
					t.Fatal(err)
				}
				want, err := row.Transpose()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(col.Codes, want.Codes) || !bytes.Equal(col.Scales, want.Scales) || !slices.Equal(col.Scales32, want.Scales32) ||
					col.Global != want.Global {
					t.Errorf("%s, %v, step %d: the columnwise copy is not the transpose", f, rounding, step)
				}
				s.discard(row, col)
			}
		}
	}
}
