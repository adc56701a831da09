package calibration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// The factor of an input in a file of statistics, in place of what it is made of. An input without a drift has no aim.
const (
	factor = ".factor" // upper triangle, row after row
	order  = ".order"  // the columns, and how often the damping was raised
	aim    = ".aim"    // D·H⁻¹, inputs × inputs
)

// Layer reads the statistics of a layer, which is finished. With Pairs it first makes the factors of their inputs, for those who read the
// statistics of all layers, too: they take the time of the method. The caller closes them.
func (c *Collector) Layer(ctx context.Context, layer int) (*Statistics, error) {
	if c.Pairs {
		c.free = nil // factors take the memory of the sums
		if err := c.solve(ctx, layer); err != nil {
			return nil, err
		}
	}
	return Read(c.part(layer))
}

// solve puts the factors of inputs in the file of a layer. A run that is killed meanwhile begins the layer again.
func (c *Collector) solve(ctx context.Context, layer int) (err error) {
	s, err := Read(c.part(layer))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.all, (*Input).Solved) { // by the run that this one resumes
		return s.Close()
	}
	w := writer{}
	for _, in := range s.all {
		w.solved(in, c.Threads)
	}
	err = w.write(ctx, c.solving(layer))
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	return os.Rename(c.solving(layer), c.part(layer))
}

// solving returns the path of the file of a layer while its factors are made.
func (c *Collector) solving(layer int) string { return c.part(layer) + ".microscale-solving" }

// SolvingSeconds predicts the time of all factors, and of the codes of the weights of all layers, as if all were in the
// first of some formats that the method supports. It returns 0 if there is none, or if its pace cannot be measured.
func (c *Collector) SolvingSeconds(formats []quant.Format) (seconds float64) {
	first := slices.IndexFunc(formats, Solve.Supports)
	if first < 0 {
		return 0
	}
	q, err := Solve.Quantizer(quant.Quantizer{Format: formats[first]})
	if err != nil {
		return 0
	}
	pace, err := Solve.MeasurePace(q)
	if err != nil {
		return 0
	}
	return c.seconds(pace) / float64(parallel.Threads(c.Threads))
}

// seconds returns the processor time of all factors and codes.
func (c *Collector) seconds(pace Pace) (seconds float64) {
	for _, layer := range c.Layers {
		for _, l := range layer {
			seconds += pace.Input(l.Width, c.pairs(l)) + pace.Weight(l.Rows, l.Width, c.pairs(l))
		}
	}
	return seconds
}

// solved adds an input of another file with its factor. That of all experts, on which the factors of theirs lean, needs none.
func (w *writer) solved(in *Input, threads int) {
	vectors, n := in.stored(mean, square, peak), in.Width()
	if len(in.Modules) > 0 {
		var f *Factor // made with the first of its vectors, forgotten with the last
		vectors = append(vectors, vector{order, n + 1, func() (_ []byte, err error) {
			if f, err = in.Factor(threads); err != nil {
				return nil, err
			}
			return floatBytes(f.order()), nil
		}})
		if in.HasDrift() {
			vectors = append(vectors, vector{aim, n * n, func() ([]byte, error) { return floatBytes(f.aim.Dequantize(threads).Data), nil }})
		}
		vectors = append(vectors, vector{factor, triangle(n), func() ([]byte, error) {
			u := upper(f.u, n)
			f = nil
			return floatBytes(u), nil
		}})
	}
	w.input(in.header, vectors...)
}

// order returns the columns as numbers, and how often the damping was raised.
func (f *Factor) order() []float32 {
	out := make([]float32, 0, len(f.Order)+1)
	for _, col := range f.Order {
		out = append(out, float32(col))
	}
	raised := 0
	for damping := DefaultDamping; damping < f.Damping; damping *= 10 {
		raised++
	}
	return append(out, float32(raised))
}

// readFactor reads the factor.
func (in *Input) readFactor(threads int) (f *Factor, err error) {
	n := in.Width()
	columns, err := in.floats(order)
	if err != nil {
		return nil, err
	}
	triangular, err := in.floats(factor)
	if err != nil {
		return nil, err
	}
	f = &Factor{Damping: DefaultDamping, u: make([]float32, n*n)}
	seen := make([]bool, n)
	for _, v := range columns[:min(n, len(columns))] {
		if !(v >= 0 && v < float32(n)) || seen[int(v)] {
			break
		}
		seen[int(v)] = true
		f.Order = append(f.Order, int(v))
	}
	if len(f.Order) != n || len(columns) != n+1 || len(triangular) != triangle(n) || !(columns[n] >= 0 && columns[n] < 10) {
		return nil, fmt.Errorf("%s: no factor of %d columns: remove the file, and collect the statistics again", in.file.Name(), n)
	}
	for range int(columns[n]) {
		f.Damping *= 10
	}
	for i, at := 0, 0; i < n; i++ {
		if in.Square[i] == 0 {
			f.Dead++
		}
		at += copy(f.u[i*n+i:(i+1)*n], triangular[at:])
	}
	if _, ok := in.file.Lookup(in.name + aim); !ok {
		return f, nil
	}
	moves, err := in.floats(aim)
	if err == nil && len(moves) != n*n {
		err = fmt.Errorf("%s: got an aim of %d numbers, want %d", in.file.Name(), len(moves), n*n)
	}
	if err != nil {
		return nil, err
	}
	return f, f.setAim(tensor.Dense{Rows: n, Cols: n, Stride: n, Data: moves}, threads)
}
