package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A check compares a module with a float64 function of all of its inputs.
type check struct {
	inputs  []tensor.Dense // parameters among them
	forward func() tensor.Dense
	// backward returns the gradients of the inputs for the gradient of the output.
	backward func(dy tensor.Dense) []tensor.Dense
	want     func(inputs [][]float64) []float64
}

// run compares the forward pass with want, to a relative error of 2e-6 of the largest element, and the
// backward pass with central differences of want, to 1e-5.
func (c check) run(t *testing.T) {
	t.Helper()
	wide := make([][]float64, len(c.inputs))
	for i, x := range c.inputs {
		for _, v := range x.Clone().Data {
			wide[i] = append(wide[i], float64(v))
		}
	}
	want := c.want(wide)
	y := c.forward()
	requireClose(t, "output", y.Clone().Data, want, 2e-6)

	dy := randomDense(rand.New(rand.NewPCG(9, 9)), y.Rows, y.Cols)
	loss := func() float64 {
		sum := 0.0
		for i, v := range c.want(wide) {
			sum += v * float64(dy.Data[i])
		}
		return sum
	}
	for i, dx := range c.backward(dy) {
		got := dx.Clone().Data
		slopes := make([]float64, len(got))
		for j := range slopes {
			const h = 1e-4
			v := wide[i][j]
			wide[i][j] = v + h
			up := loss()
			wide[i][j] = v - h
			slopes[j] = (up - loss()) / (2 * h)
			wide[i][j] = v
		}
		requireClose(t, fmt.Sprintf("gradient of input %d", i), got, slopes, 1e-5)
	}
}

func requireClose(t *testing.T, what string, got []float32, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", what, len(got), len(want))
	}
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	if largest == 0 {
		t.Fatalf("%s: got only zeros", what)
	}
	for i, v := range want {
		if !(math.Abs(float64(got[i])-v) <= tolerance*largest) {
			t.Fatalf("%s: element %d: got %g, want %g (largest %g)", what, i, got[i], v, largest)
		}
	}
}

func randomDense(r *rand.Rand, rows, cols int) tensor.Dense {
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	return x
}

func f32Scope(t testing.TB) *Scope { return scopeOf(t, "f32") }

func scopeOf(t testing.TB, name string) *Scope {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return &Scope{Recipe: r, Threads: 2}
}

// dense returns a function that takes the result of a module and fails the test on errors.
func dense(t testing.TB) func(tensor.Dense, error) tensor.Dense {
	return func(x tensor.Dense, err error) tensor.Dense {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func TestRMSNorm(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 1))
	const rows, cols, epsilon = 70, 6, 1e-2
	n := NewRMSNorm("norm", cols, epsilon)
	n.Weight.Value = randomDense(r, 1, cols)
	x := randomDense(r, rows, cols)
	clear(x.Row(3))
	var saved Saved
	check{
		inputs: []tensor.Dense{x, n.Weight.Value},
		forward: func() tensor.Dense {
			y, kept, err := n.Forward(s, x)
			saved = kept
			return dense(t)(y, err)
		},
		backward: func(dy tensor.Dense) []tensor.Dense {
			return []tensor.Dense{dense(t)(n.Backward(s, saved, dy)), n.Weight.Grad}
		},
		want: func(in [][]float64) []float64 {
			y := make([]float64, rows*cols)
			for i := range rows {
				row, sum := in[0][i*cols:(i+1)*cols], 0.0
				for _, v := range row {
					sum += v * v
				}
				for j, v := range row {
					y[i*cols+j] = in[1][j] * v / math.Sqrt(sum/cols+epsilon)
				}
			}
			return y
		},
	}.run(t)
}

func TestSwiGLU(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 2))
	const rows, width = 5, 7
	x := randomDense(r, rows, 2*width)
	x.Set(0, 0, -30)
	x.Set(1, 0, 30)
	g := GLU{Name: "swiglu"}
	var saved Saved
	check{
		inputs: []tensor.Dense{x},
		forward: func() tensor.Dense {
			y, kept, err := g.Forward(s, x)
			saved = kept
			return dense(t)(y, err)
		},
		backward: func(dy tensor.Dense) []tensor.Dense {
			return []tensor.Dense{dense(t)(g.Backward(s, saved, dy))}
		},
		want: func(in [][]float64) []float64 {
			var y []float64
			for i := range rows {
				for j := range width {
					gate := in[0][i*2*width+j]
					y = append(y, gate/(1+math.Exp(-gate))*in[0][i*2*width+width+j])
				}
			}
			return y
		},
	}.run(t)
}

func TestEmbedding(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 3))
	ids := []int32{2, 0, 2, 4, 2}
	e := NewEmbedding("embedding", 5, 33)
	e.Weight.Value = randomDense(r, 5, 33)
	check{
		inputs:  []tensor.Dense{e.Weight.Value},
		forward: func() tensor.Dense { return dense(t)(e.Forward(s, ids)) },
		backward: func(dy tensor.Dense) []tensor.Dense {
			if err := e.Backward(s, ids, dy); err != nil {
				t.Fatal(err)
			}
			return []tensor.Dense{e.Weight.Grad}
		},
		want: func(in [][]float64) []float64 {
			var y []float64
			for _, id := range ids {
				y = append(y, in[0][id*33:(id+1)*33]...)
			}
			return y
		},
	}.run(t)
	for _, id := range []int32{-1, 5} {
		if _, err := e.Forward(s, []int32{0, id}); err == nil {
			t.Errorf("token %d: got no error", id)
		}
	}
}

func TestCrossEntropy(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 4))
	const rows, classes = 6, 9
	logits := randomDense(r, rows, classes)
	for j := range classes {
		logits.Data[2*classes+j] += 1e4 // no overflow
	}
	targets := []int32{0, 8, 3, -1, 4, 4}
	c := CrossEntropy{"loss"}
	var saved Saved
	check{
		inputs: []tensor.Dense{logits.Clone()},
		forward: func() tensor.Dense {
			loss, kept, err := c.Forward(s, logits, targets)
			saved = kept
			return dense(t)(tensor.Of(1, 1, []float32{float32(loss)}), err)
		},
		backward: func(dy tensor.Dense) []tensor.Dense {
			return []tensor.Dense{dense(t)(c.Backward(s, saved, dy.Data[0]))}
		},
		want: func(in [][]float64) []float64 {
			loss := 0.0
			for i, target := range targets {
				if target < 0 {
					continue
				}
				row, sum := in[0][i*classes:(i+1)*classes], 0.0
				for _, v := range row {
					sum += math.Exp(v - row[0])
				}
				loss += (math.Log(sum) + row[0] - row[target]) / 5
			}
			return []float64{loss}
		},
	}.run(t)
	for name, targets := range map[string][]int32{"beyond": {0, 9, 0, 0, 0, 0}, "none": {-1, -1, -1, -1, -1, -1}, "few": {0}} {
		if _, _, err := c.Forward(s, randomDense(r, rows, classes), targets); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestAttention(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 5))
	const batch, length, base = 2, 9, 50.0
	a := &Attention{Name: "attention", Heads: 4, KVHeads: 2, HeadDim: 4,
		Rotary: NewRotary(RotaryConfig{HeadDim: 4, Positions: length, Base: base})}
	x := randomDense(r, batch*length, a.Width())
	var saved Saved
	check{
		inputs: []tensor.Dense{x.Clone()},
		forward: func() tensor.Dense {
			y, kept, err := a.Forward(s, x, batch)
			saved = kept
			return dense(t)(y, err)
		},
		backward: func(dy tensor.Dense) []tensor.Dense {
			return []tensor.Dense{dense(t)(a.Backward(s, saved, dy))}
		},
		want: func(in [][]float64) []float64 { return attend(a, in[0], batch) },
	}.run(t)
}

// TestAttentionChunks compares sequences longer than a chunk, and not a multiple of it, with float64,
// and the gradient with one directional derivative.
func TestAttentionChunks(t *testing.T) {
	s := f32Scope(t)
	r := rand.New(rand.NewPCG(1, 6))
	const batch, length, base = 2, 2*chunkTokens + 37, 10000.0
	a := &Attention{Name: "attention", Heads: 2, KVHeads: 1, HeadDim: 4,
		Rotary: NewRotary(RotaryConfig{HeadDim: 4, Positions: length, Base: base})}
	x := randomDense(r, batch*length, a.Width())
	wide := make([]float64, len(x.Data))
	for i, v := range x.Data {
		wide[i] = float64(v)
	}
	y, saved, err := a.Forward(s, x, batch)
	if err != nil {
		t.Fatal(err)
	}
	requireClose(t, "output", y.Data, attend(a, wide, batch), 2e-6)
	dy := randomDense(r, y.Rows, y.Cols)
	dx := dense(t)(a.Backward(s, saved, dy))
	for range 6 {
		direction := randomDense(r, x.Rows, x.Cols)
		slope, along := 0.0, 0.0
		for _, h := range []float64{1e-5, -1e-5} {
			moved := make([]float64, len(wide))
			for i, v := range wide {
				moved[i] = v + h*float64(direction.Data[i])
			}
			for i, v := range attend(a, moved, batch) {
				slope += v * float64(dy.Data[i]) / (2 * h)
			}
		}
		for i, v := range dx.Data {
			along += float64(v) * float64(direction.Data[i])
		}
		if math.Abs(slope-along) > 1e-4*math.Abs(slope)+1e-3 {
			t.Errorf("directional derivative: got %g by the gradient, want %g", along, slope)
		}
	}
}

// TestExtend compares Extend, token by token and in uneven pieces, with one forward pass.
func TestExtend(t *testing.T) {
	s := f32Scope(t)
	s.Inference = true
	r := rand.New(rand.NewPCG(1, 7))
	const length = 150
	a := &Attention{Name: "attention", Heads: 4, KVHeads: 2, HeadDim: 8,
		Rotary: NewRotary(RotaryConfig{HeadDim: 8, Positions: length, Base: 100})}
	x := randomDense(r, length, a.Width())
	var keys, values tensor.Dense
	s.Observer.KeysValues = func(module string, k, v tensor.Dense) {
		if module != a.Name {
			t.Errorf("got keys and values of %q, want %q", module, a.Name)
		}
		keys, values = k.Clone(), v.Clone()
	}
	want, saved, err := a.Forward(s, x.Clone(), 1)
	if err != nil || saved != nil {
		t.Fatal(saved, err)
	}
	for _, pieces := range [][]int{{150}, {1, 1, 1, 147}, {140, 1, 1, 1, 7}, {20, 130}} {
		var cache Cache
		from := 0
		for _, n := range pieces {
			y := dense(t)(a.Extend(s, x.View(from, from+n, 0, x.Cols).Clone(), &cache))
			for i := range n {
				for j, v := range y.Row(i) {
					if w := want.At(from+i, j); math.Abs(float64(v-w)) > 1e-5 {
						t.Fatalf("pieces %v: token %d: got %g, want %g", pieces, from+i, v, w)
					}
				}
			}
			from += n
		}
		if cache.Len() != length {
			t.Errorf("cache: got %d tokens", cache.Len())
		}
		for i := range length {
			if row := cache.rows.Row(i); !slices.Equal(row[:16], keys.Row(i)) || !slices.Equal(row[16:], values.Row(i)) {
				t.Fatalf("pieces %v: the cache of token %d is not what Observer.KeysValues saw", pieces, i)
			}
		}
		if _, err := a.Extend(s, tensor.New(1, a.Width()), &cache); err == nil {
			t.Error("token beyond the last position: got no error")
		}
	}
}
