package calibration

import (
	"context"
	"errors"
	"fmt"
)

// WriteFolded writes the statistics of a folded model to a file: those of s, of which some inputs, by the first of their Modules, are
// divided by powers of two, one for each column. If a text gives each column of such an input the values of the original divided by its
// power, they are those of the folded model over that text, to the bit, but for the order of the tensors. The file is durable, and
// replaces one at path. It returns an error if s has no amaxes of columns, or if it belongs to one choice of formats
// (statistics that follow quantized layers, or are of quantized inputs), or when ctx ends.
func (s *Statistics) WriteFolded(ctx context.Context, path string, divisors map[string][]float32) error {
	if err := s.CheckFolded(divisors); err != nil {
		return err
	}
	w := writer{}
	for _, in := range s.all {
		by := in.divisors(divisors)
		if by == nil {
			w.copied(in, in.header)
			continue
		}
		if err := w.folded(in, by); err != nil {
			return err
		}
	}
	return w.place(ctx, path, true)
}

// CheckFolded returns the error that WriteFolded has for statistics that cannot be divided, before a model is folded.
func (s *Statistics) CheckFolded(divisors map[string][]float32) error {
	if s.file == nil {
		return errors.New("an importance matrix has no statistics of a folded model: use those of calibrate --out FILE.safetensors")
	}
	found := 0
	for _, in := range s.all {
		by := in.divisors(divisors)
		if by == nil {
			continue
		}
		if err := in.checkFolded(by); err != nil {
			return err
		}
		found++
	}
	if found != len(divisors) {
		return fmt.Errorf("calibration: the statistics have %d of %d inputs that are divided", found, len(divisors))
	}
	return nil
}

// divisors returns what the columns of the input are divided by; nil if they stay.
func (in *Input) divisors(all map[string][]float32) []float32 {
	if len(in.Modules) == 0 {
		return nil
	}
	return all[in.Modules[0]]
}

// checkFolded returns an error if the columns of the input cannot be divided.
func (in *Input) checkFolded(by []float32) error {
	n := in.Width()
	switch p, ok := in.file.Lookup(in.name + peak); {
	case len(by) != n:
		return fmt.Errorf("calibration: got %d divisors for the %d columns of the input of %s", len(by), n, in.Modules[0])
	case in.HasDrift() || in.Solved() || in.IsExpert() || in.header.Diagonal:
		return fmt.Errorf("%s: the statistics of the input of %s cannot be divided by columns", in.file.Name(), in.Modules[0])
	case !ok:
		return fmt.Errorf("%s: the input of %s has no amaxes of its columns: collect the statistics again", in.file.Name(), in.Modules[0])
	case p.Elements() != int64(n):
		return fmt.Errorf("%s: got %d amaxes, want %d", in.file.Name(), p.Elements(), n)
	}
	return nil
}

// folded adds an input of another file, whose columns are divided.
func (w *writer) folded(in *Input, by []float32) error {
	peaks, err := in.floats(peak)
	if err != nil {
		return err
	}
	h := in.header
	h.Amax = 0
	for j, v := range peaks {
		h.Amax = max(h.Amax, float64(v/by[j]))
	}
	vectors := in.stored(mean, square, peak, hessian)
	for i, v := range vectors {
		divide := func(x []float32) {
			for j := range x {
				x[j] /= by[j]
			}
		}
		switch v.end {
		case square:
			divide = func(x []float32) {
				for j := range x {
					x[j] /= by[j] * by[j]
				}
			}
		case hessian:
			divide = func(x []float32) { divideTriangle(x, by) }
		}
		vectors[i].data = func() ([]byte, error) {
			x, err := in.floats(v.end)
			if err == nil {
				divide(x)
			}
			return floatBytes(x), err
		}
	}
	w.input(h, vectors...)
	return nil
}

// divideTriangle divides the products of columns, the upper triangle row after row, by those of their divisors.
func divideTriangle(x, by []float32) {
	for i := range by {
		for _, b := range by[i:] {
			x[0] /= by[i] * b
			x = x[1:]
		}
	}
}
