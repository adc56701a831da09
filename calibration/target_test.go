package calibration

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A drifting is a weight with its inputs in the original model and behind quantized layers.
type drifting struct {
	weight, original, low tensor.Dense
	input                 *Input
}

// newDrifting returns a weight of rows × cols, and its statistics over a number of tokens.
func newDrifting(t *testing.T, rows, cols, tokens int) drifting {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 0))
	d := drifting{weight: tensor.New(rows, cols), original: tensor.New(tokens, cols), low: tensor.New(tokens, cols)}
	for i := range d.weight.Data {
		d.weight.Data[i] = float32(r.NormFloat64())
	}
	for i := range tokens {
		common, error := r.NormFloat64(), r.NormFloat64()
		for j := range cols {
			size := math.Exp(math.Sin(float64(j)))
			v := size * (common + r.NormFloat64())
			d.original.Set(i, j, float32(v))
			d.low.Set(i, j, float32(v*(1+0.1*math.Cos(float64(j)))+0.05*size*error+0.03*size*r.NormFloat64()))
		}
	}
	c := &Collector{Dir: t.TempDir(), Hessian: true, Pairs: true, Threads: 2,
		Layers: [][]Linear{{{Name: "in", Width: cols, Modules: []string{"in"}}}}}
	c.Out = filepath.Join(c.Dir, "statistics.safetensors")
	if err := errors.Join(c.AddPair("in", d.original, d.low), c.Finish(t.Context(), 0), c.Join(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, err := Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	d.input, _ = s.Of("in")
	return d
}

// drift reads the drift of the statistics, as if it was over a number of tokens.
func (d drifting) drift(t *testing.T, tokens int64) Drift {
	t.Helper()
	products, err := d.input.file.Floats(d.input.name + drift)
	if err != nil {
		t.Fatal(err)
	}
	squares, err := d.input.file.Floats(d.input.name + driftSquare)
	if err != nil {
		t.Fatal(err)
	}
	return Drift{products, squares, tokens}
}

// loss returns the error of the outputs of q behind quantized layers, beside those of the original.
func (d drifting) loss(q tensor.Dense) (sum float64) {
	for i := range d.original.Rows {
		for row := range q.Rows {
			e := 0.0
			for j := range q.Cols {
				e += float64(d.original.At(i, j))*float64(d.weight.At(row, j)) - float64(d.low.At(i, j))*float64(q.At(row, j))
			}
			sum += e * e
		}
	}
	return sum
}

// leastSquares returns W̃ by the normal equations (X̂ᵀX̂/n + λI)·W̃ᵀ = X̂ᵀX·Wᵀ/n + λWᵀ, in float64 by elimination.
func (d drifting) leastSquares(lambda float64) [][]float64 {
	n, rows, tokens := d.weight.Cols, d.weight.Rows, d.original.Rows
	a := make([][]float64, n)
	for j := range n {
		a[j] = make([]float64, n+rows)
		for k := range n {
			for i := range tokens {
				a[j][k] += float64(d.low.At(i, j)) * float64(d.low.At(i, k)) / float64(tokens)
			}
		}
		a[j][j] += lambda
		for row := range rows {
			a[j][n+row] = lambda * float64(d.weight.At(row, j))
			for i := range tokens {
				y := 0.0
				for k := range n {
					y += float64(d.original.At(i, k)) * float64(d.weight.At(row, k))
				}
				a[j][n+row] += float64(d.low.At(i, j)) * y / float64(tokens)
			}
		}
	}
	for c := range n {
		for r := range n {
			if r == c {
				continue
			}
			times := a[r][c] / a[c][c]
			for k := range a[r] {
				a[r][k] -= times * a[c][k]
			}
		}
	}
	w := make([][]float64, rows)
	for row := range w {
		w[row] = make([]float64, n)
		for j := range n {
			w[row][j] = a[j][n+row] / a[j][j]
		}
	}
	return w
}

// TestAim compares W̃ with a direct least-squares solution, and codes with and without it.
func TestAim(t *testing.T) {
	const rows, cols, tokens = rowTile + 5, 32, 200
	d := newDrifting(t, rows, cols, tokens)
	f, err := d.input.Factor(2)
	if err != nil {
		t.Fatal(err)
	}
	some := d.drift(t, tokens)
	few, err := f.aimed(d.weight, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Aim(d.drift(t, 1<<50), 2); err != nil { // so many that nothing is chance
		t.Fatal(err)
	}
	got, err := f.aimed(d.weight, 2)
	if err != nil {
		t.Fatal(err)
	}
	mean := 0.0
	for _, v := range d.input.Square {
		mean += float64(v) / cols
	}
	want, moved := d.leastSquares(DefaultDamping*mean), 0.0
	for row := range rows {
		for j := range cols {
			moved = max(moved, math.Abs(float64(got.At(row, j)-d.weight.At(row, j))))
			if math.Abs(float64(got.At(row, j))-want[row][j]) > 1e-4 {
				t.Fatalf("row %d, column %d: got %g, want %g", row, j, got.At(row, j), want[row][j])
			}
		}
	}
	if moved < 0.05 {
		t.Errorf("the weights move by %g", moved)
	}
	for row := range rows { // alone
		one, err := f.aimed(d.weight.View(row, row+1, 0, cols), 1)
		if err != nil || !bytes.Equal(floatBytes(one.Row(0)), floatBytes(got.Row(row))) {
			t.Errorf("row %d depends on the others (%v)", row, err)
		}
	}
	unit := tensor.New(cols, cols)
	for i := range cols {
		unit.Set(i, i, 1)
	}
	moves, err := f.aimed(unit, 1)
	if err != nil {
		t.Fatal(err)
	}
	shares := make([]float64, cols)
	for i := range cols {
		moves.Set(i, i, moves.At(i, i)-1)
		explained := 0.0
		for j := range cols {
			explained += float64(moves.At(i, j)) * float64(some.Products[i*cols+j])
		}
		shares[i] = some.share(explained, i)
	}
	for row := range rows {
		for j := range cols {
			sum := float64(d.weight.At(row, j))
			for i := range cols { // row i of D·H⁻¹ is what a weight that is 1 in column i alone moves by
				sum += float64(d.weight.At(row, i)) * shares[i] * float64(moves.At(i, j))
			}
			if math.Abs(float64(few.At(row, j))-sum) > 1e-4 {
				t.Fatalf("row %d, column %d over few tokens: got %g, want %g", row, j, few.At(row, j), sum)
			}
		}
	}
	d.weight.Set(3, 4, float32(math.NaN()))
	if broken, err := f.aimed(d.weight, 2); err != nil || broken.At(3, 5) != d.weight.At(3, 5) || broken.At(4, 5) != got.At(4, 5) {
		t.Errorf("a NaN changes other elements (%v)", err)
	}
	if f.Aim(Drift{Products: make([]float32, cols), Square: make([]float32, cols)}, 1) == nil {
		t.Error("no error for a drift of another size")
	}
}

// TestShare: of what inputs explain by chance, nothing is left; of what they explain wholly, everything.
func TestShare(t *testing.T) {
	d := Drift{Square: []float32{1, 4}, Tokens: 102}
	for _, tc := range []struct {
		explained float64
		i         int
		want      float64
	}{{1, 0, 1}, {0, 0, 0}, {0.5, 0, 0.98}, {0.01, 0, 0}, {2, 1, 0.98}, {5, 1, 1}} {
		if got := d.share(tc.explained, tc.i); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%g of %g: got %g, want %g", tc.explained, d.Square[tc.i], got, tc.want)
		}
	}
	if d.Tokens = 2; d.share(1, 0) != 0 {
		t.Error("as many tokens as columns explain everything")
	}
}

// TestAimedCodes: codes that aim at the original's outputs lose less of them than codes of the weight.
func TestAimedCodes(t *testing.T) {
	d := newDrifting(t, 24, 64, 1000)
	aimed, err := d.input.Factor(1)
	if err != nil {
		t.Fatal(err)
	}
	plain := *aimed
	plain.aim = nil
	q, with := quant.Quantizer{Format: quant.NVFP4}, quant.With{Amax: new(quant.Amax(d.weight, 1))}
	var losses []float64
	for _, f := range []*Factor{&plain, aimed} {
		codes, err := GPTQ(q, d.weight, with, f)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, d.loss(codes.Dequantize(1)))
	}
	if !(losses[1] < 0.8*losses[0]) {
		t.Errorf("the outputs lose %g, without aim %g", losses[1], losses[0])
	}
	if err := aimed.Aim(Drift{make([]float32, 64*64), make([]float32, 64), 1000}, 1); err != nil { // no drift
		t.Fatal(err)
	}
	want, err := GPTQ(q, d.weight, with, &plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := GPTQ(q, d.weight, with, aimed); err != nil || !bytes.Equal(got.Codes, want.Codes) || !bytes.Equal(got.Scales, want.Scales) {
		t.Errorf("without drift, other codes (%v)", err)
	}
}

// TestQuantizedInputs: statistics of inputs that clients quantize are those of these values, beside the original ones, and GPTQ by them
// loses less there than by those of the inputs as they are.
func TestQuantizedInputs(t *testing.T) {
	const rows, cols, tokens = 24, 64, 2000
	d := newDrifting(t, rows, cols, tokens)
	low, err := quantizedRows(quant.NVFP4, d.original, 3)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Solve.Quantizer(quant.Quantizer{Format: quant.NVFP4})
	if err != nil {
		t.Fatal(err)
	}
	collected := func(name string, add func(c *Collector) error, l Linear) *Input {
		t.Helper()
		l.Name, l.Width, l.Modules = "in", cols, []string{"in"}
		c := &Collector{Dir: t.TempDir(), Hessian: true, Pairs: name == "pair", Threads: 2, Layers: [][]Linear{{l}}}
		c.Out = filepath.Join(c.Dir, "statistics.safetensors")
		if err := errors.Join(add(c), c.Finish(t.Context(), 0), c.Join(t.Context())); err != nil {
			t.Fatal(err)
		}
		s, err := Read(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		in, _ := s.Of("in")
		info, err := os.Stat(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		if data := info.Size() - in.file.DataStart(); l.Kind == "" && (c.FileBytes() < data || c.FileBytes() > data+4) { // 4: an order has more
			t.Errorf("%s: %d bytes of statistics, by the forecast %d", name, data, c.FileBytes())
		}
		return in
	}
	loss := func(in *Input) float64 {
		t.Helper()
		f, err := in.Factor(2)
		if err != nil {
			t.Fatal(err)
		}
		got, err := GPTQ(q, d.weight, quant.With{Importance: in.Square, Amax: new(quant.Amax(d.weight, 1))}, f)
		if err != nil {
			t.Fatal(err)
		}
		return drifting{weight: d.weight, original: d.original, low: low}.loss(got.Dequantize(1))
	}
	add := func(c *Collector) error { return c.Add("in", d.original) }
	plain, lowered := collected("plain", add, Linear{}), collected("low", add, Linear{Activations: quant.NVFP4})
	pair := collected("pair", func(c *Collector) error { return c.AddPair("in", d.original, low) }, Linear{})
	for _, name := range []string{square, mean, hessian, drift, driftSquare} {
		got, err := lowered.file.Floats(lowered.name + name)
		want, other := pair.file.Floats(pair.name + name)
		if err := errors.Join(err, other); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is not that of the quantized values", name)
		}
	}
	if want := roundAmax(quant.NVFP4, plain.Amax); lowered.Amax != want {
		t.Errorf("the amax is %g, want %g", lowered.Amax, want)
	}
	if got, want := loss(lowered), loss(plain); !(got < 0.99*want) {
		t.Errorf("the loss is %g, by statistics of inputs as they are %g", got, want)
	}
	expert := collected("expert", add, Linear{Activations: quant.NVFP4, Kind: "experts", Stream: true})
	if expert.HasDrift() || expert.Amax != plain.Amax {
		t.Errorf("an expert has a drift, or the amax %g", expert.Amax)
	}
}

// TestRoundAmax: the global scale of a rounded amax is a power of two, and rows have the codes of any other such scale.
func TestRoundAmax(t *testing.T) {
	for amax, want := range map[float64]float64{0: 0, 2688: 2688, 2688.5: 5376, 1344: 1344, 1343: 1344, 3: 5.25, 2.625: 2.625} {
		if got := roundAmax(quant.NVFP4, amax); got != want {
			t.Errorf("%g: got %g, want %g", amax, got, want)
		}
	}
	if got := roundAmax(quant.MXFP4, 3); got != 3 {
		t.Errorf("a format without a global scale: got %g", got)
	}
	r := rand.New(rand.NewPCG(5, 0))
	x := tensor.New(8, 64)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	rows, err := quantizedRows(quant.NVFP4, x, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, factor := range []float64{1, 2, 64} {
		whole, err := quant.Quantizer{Format: quant.NVFP4}.Rowwise(x, quant.With{
			Amax: new(float32(factor * roundAmax(quant.NVFP4, float64(quant.Amax(x, 1)))))})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(whole.Dequantize(1).Data, rows.Data) {
			t.Errorf("the scale times %g gives other values than those of the rows", factor)
		}
	}
}
