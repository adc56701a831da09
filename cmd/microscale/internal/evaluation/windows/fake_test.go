package windows

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/microscale-go/microscale/tensor"
)

// A fake is a Stack whose layers add the product of a causal mean with two matrices to the
// residual stream. All arithmetic is float32, row by row.
type fake struct {
	vocabulary, positions, hidden int
	embedding, head               tensor.Dense
	layers                        []fakeLayer
}

type fakeLayer struct {
	name   string
	up     tensor.Dense
	down   tensor.Dense
	broken bool // outputs are NaN

	released bool
}

const fakeHidden = 12

// newFake returns a fake with random weights, of which noise is added to every layer.
func newFake(vocabulary, layers int, noise float32) *fake {
	r := rand.New(rand.NewPCG(1, 2))
	extra := rand.New(rand.NewPCG(3, 4))
	f := &fake{vocabulary: vocabulary, positions: 64, hidden: fakeHidden, embedding: random(r, vocabulary, fakeHidden, 1),
		head: random(r, vocabulary, fakeHidden, 1)}
	for i := range layers {
		l := fakeLayer{name: fmt.Sprintf("layers.%d", i), up: random(r, 20, fakeHidden, 0.3), down: random(r, fakeHidden, 20, 0.3)}
		for _, m := range []tensor.Dense{l.up, l.down} {
			for j := range m.Data {
				m.Data[j] += noise * float32(extra.NormFloat64())
			}
		}
		f.layers = append(f.layers, l)
	}
	return f
}

func random(r *rand.Rand, rows, cols int, scale float64) tensor.Dense {
	m := tensor.New(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(scale * r.NormFloat64())
	}
	return m
}

// product returns x·Wᵀ.
func product(x, w tensor.Dense) tensor.Dense {
	y := tensor.New(x.Rows, w.Rows)
	for i := range x.Rows {
		for j := range w.Rows {
			sum := 0.0
			for k, v := range x.Row(i) {
				sum += float64(v) * float64(w.At(j, k))
			}
			y.Set(i, j, float32(sum))
		}
	}
	return y
}

func (f *fake) Vocabulary() int { return f.vocabulary }
func (f *fake) Positions() int  { return f.positions }
func (f *fake) Layers() int     { return len(f.layers) }

func (f *fake) Embed(tokens []int32) (tensor.Dense, error) {
	x := tensor.New(len(tokens), f.hidden)
	for i, t := range tokens {
		copy(x.Row(i), f.embedding.Row(int(t)))
	}
	return x, nil
}

func (f *fake) Layer(_ context.Context, i int, _ Layer) (Layer, error) { return &f.layers[i], nil }

func (f *fake) Head(x tensor.Dense) (Head, error) {
	return func(from, to int) (tensor.Dense, error) {
		return product(x, f.head.View(from, to, 0, f.hidden)), nil
	}, nil
}

// Forward adds down·(up·mean) to x, where mean is that of the rows up to each one.
func (l *fakeLayer) Forward(x tensor.Dense, watch Watch) (tensor.Dense, error) {
	if l.released {
		return x, fmt.Errorf("%s was released", l.name)
	}
	mean := tensor.New(x.Rows, x.Cols)
	for j := range x.Cols {
		sum := float32(0)
		for i := range x.Rows {
			sum += x.At(i, j)
			mean.Set(i, j, sum/float32(i+1))
		}
	}
	up := product(mean, l.up)
	down := product(up, l.down)
	if watch.Linear != nil {
		if err := watch.Linear(l.name+".up", mean, up); err != nil {
			return x, err
		}
		if err := watch.Linear(l.name+".down", up, down); err != nil {
			return x, err
		}
	}
	if watch.Cache != nil {
		watch.Cache(l.name, mean, up)
	}
	y := tensor.New(x.Rows, x.Cols)
	for i := range y.Data {
		y.Data[i] = x.Data[i] + down.Data[i]
	}
	if l.broken {
		y.Data[0] /= 0 * y.Data[1]
		y.Data[0] -= y.Data[0]
	}
	return y, nil
}

func (l *fakeLayer) Apply(linear string, in tensor.Dense) (tensor.Dense, error) {
	if linear == l.name+".up" {
		return product(in, l.up), nil
	}
	return product(in, l.down), nil
}

func (l *fakeLayer) Release() { l.released = true }

// fakeTokens returns a text.
func fakeTokens(n, vocabulary int) []int32 {
	r := rand.New(rand.NewPCG(5, 6))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.IntN(vocabulary))
	}
	return tokens
}
