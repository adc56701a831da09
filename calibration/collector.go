package calibration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A Collector sums the inputs of the linear layers of a model that reads a text layer by layer. It holds the
// sums of one layer at a time; those of earlier layers are in files of Dir. Sums are in float64, of products
// of at most blockTokens tokens in float32: they depend on how the text is divided, not on Threads.
type Collector struct {
	Dir     string                       // of files, one for each layer
	Modules func(linear string) []string // the modules of the checkpoint that a linear layer of the model is
	Hessian bool                         // sum the products of columns with each other: 8·in² bytes
	Threads int                          // 0: one per processor
	Written int                          // the number of inputs that Join wrote

	layer map[string]*sums
}

// blockTokens is the number of tokens whose products are added in float32.
const blockTokens = 2048

// sums are those of an input.
type sums struct {
	tokens       int64
	amax         float64
	square, mean []float64
	hessian      []float64 // in×in, of which the upper triangle is summed
}

// Add adds the rows of x to the input of a linear layer. An element that is not finite is an error.
func (c *Collector) Add(linear string, x tensor.Dense) error {
	if c.layer == nil {
		c.layer = map[string]*sums{}
	}
	s := c.layer[linear]
	if s == nil {
		s = &sums{square: make([]float64, x.Cols), mean: make([]float64, x.Cols)}
		if c.Hessian {
			s.hessian = make([]float64, x.Cols*x.Cols)
		}
		c.layer[linear] = s
	}
	for from := 0; from < x.Rows; from += blockTokens {
		if err := s.add(x.View(from, min(from+blockTokens, x.Rows), 0, x.Cols), c.Threads); err != nil {
			return fmt.Errorf("calibrate: the input of %s: %w", linear, err)
		}
	}
	return nil
}

// add adds a block of rows.
func (s *sums) add(x tensor.Dense, threads int) error {
	for i := range x.Rows {
		for j, v := range x.Row(i) {
			s.amax = max(s.amax, math.Abs(float64(v))) // NaN if v is
			s.square[j] += float64(v) * float64(v)
			s.mean[j] += float64(v)
		}
	}
	s.tokens += int64(x.Rows)
	if math.IsNaN(s.amax) || math.IsInf(s.amax, 0) {
		return errors.New("it is NaN or infinite for this text: the model overflows, and cannot be calibrated")
	}
	if s.hessian == nil {
		return nil
	}
	columns, err := quant.Quantizer{Format: quant.F32}.Columnwise(x, quant.With{Threads: threads})
	if err != nil {
		return err
	}
	products := tensor.New(x.Cols, x.Cols)
	if err := gemm.Mul(products, columns, columns, gemm.Options{Threads: threads}); err != nil {
		return err
	}
	parallel.For(x.Cols, 64, threads, func(from, to int) {
		for i := from; i < to; i++ {
			sum := s.hessian[i*x.Cols : (i+1)*x.Cols]
			for j, v := range products.Row(i)[i:] {
				sum[i+j] += float64(v)
			}
		}
	})
	return nil
}

// Finish writes the sums of a layer, the text of which is whole, to their file, and forgets them.
func (c *Collector) Finish(ctx context.Context, layer int) error {
	w := writer{}
	for _, linear := range slices.Sorted(maps.Keys(c.layer)) {
		s := c.layer[linear]
		if s.amax == 0 {
			return fmt.Errorf("calibrate: the input of %s is zero for every token: use another text", linear)
		}
		scale := 1 / float64(s.tokens)
		w.input(headerInput{c.Modules(linear), s.tokens, s.amax}, map[string]func() ([]byte, error){
			square: func() ([]byte, error) { return scaled(s.square, scale), nil },
			mean:   func() ([]byte, error) { return scaled(s.mean, scale), nil },
		}, len(s.square))
		if s.hessian != nil {
			w.hessian(len(s.square), func() ([]byte, error) { return scaled(upper(s.hessian, len(s.square)), scale), nil })
		}
	}
	c.layer = nil
	return w.write(ctx, c.part(layer))
}

// part returns the path of the file of a layer.
func (c *Collector) part(layer int) string {
	return filepath.Join(c.Dir, fmt.Sprintf("layer-%05d.safetensors", layer))
}

// Join writes the statistics of all layers to a new file, durably. It never replaces a file: the error is
// fs.ErrExist then. The files of the layers stay.
func (c *Collector) Join(ctx context.Context, path string, layers int) (err error) {
	var parts []*Statistics
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.Close())
		}
	}()
	w := writer{}
	for layer := range layers {
		p, err := Read(c.part(layer))
		if err != nil {
			return err
		}
		parts = append(parts, p)
		for _, in := range p.Inputs {
			w.input(headerInput{in.Modules, in.Tokens, in.Amax}, map[string]func() ([]byte, error){
				square: func() ([]byte, error) { return floatBytes(in.Square), nil },
				mean:   func() ([]byte, error) { return floatBytes(in.Mean), nil },
			}, in.Width())
			if in.HasHessian() {
				w.hessian(in.Width(), func() ([]byte, error) {
					h, err := in.Hessian()
					return floatBytes(h), err
				})
			}
		}
	}
	c.Written = len(w.header.Inputs)
	if err := w.write(ctx, c.whole()); err != nil {
		return err
	}
	if err := durable.RenameNew(c.whole(), path); err != nil {
		return errors.Join(err, os.Remove(c.whole()))
	}
	return durable.SyncDir(filepath.Dir(path))
}

// whole returns the path of the file of all layers while it is written.
func (c *Collector) whole() string { return filepath.Join(c.Dir, "whole.safetensors") }

// Remove removes the files of the layers, and what a run that was killed left.
func (c *Collector) Remove(layers int) (err error) {
	paths := []string{c.whole()}
	for layer := range layers {
		paths = append(paths, c.part(layer))
	}
	for _, path := range paths {
		if removed := os.Remove(path); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}

// A writer gathers what a file of statistics is to hold. Its data is made while it is written.
type writer struct {
	header header
	specs  []safetensors.Spec
	data   []func() ([]byte, error)
}

// input adds an input of n columns.
func (w *writer) input(h headerInput, vectors map[string]func() ([]byte, error), n int) {
	for _, end := range slices.Sorted(maps.Keys(vectors)) {
		w.tensor(len(w.header.Inputs), end, n, vectors[end])
	}
	w.header.Inputs = append(w.header.Inputs, h)
}

// hessian adds the products of the last input, of n columns.
func (w *writer) hessian(n int, data func() ([]byte, error)) {
	w.tensor(len(w.header.Inputs)-1, hessian, n*(n+1)/2, data)
}

func (w *writer) tensor(input int, end string, n int, data func() ([]byte, error)) {
	w.specs = append(w.specs, safetensors.Spec{Name: strconv.Itoa(input) + end, Dtype: safetensors.F32, Shape: []int64{int64(n)}})
	w.data = append(w.data, data)
}

// write writes the file, which is on the disk when write returns, in place of what a run that was killed left.
// On error it is removed.
func (w *writer) write(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.header.Version = version
	text, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	layout, err := safetensors.NewLayout(w.specs, map[string]string{metadataKey: string(text)})
	if err != nil {
		return err
	}
	file, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	for i, s := range w.specs {
		data, err := w.data[i]()
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = file.WriteTensorAt(s.Name, data, 0)
		}
		if err != nil {
			return errors.Join(err, file.Abort())
		}
	}
	return file.Close()
}
