package calibration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
)

// An Input is what is known of the input of a linear layer, or of several that share it.
type Input struct {
	Modules []string  // that read it, by their names in the checkpoint
	Tokens  int64     // rows of X
	Amax    float64   // the largest magnitude
	Square  []float32 // mean square of each column: the diagonal of H
	Mean    []float32 // of each column

	file    *safetensors.File
	hessian safetensors.TensorInfo // no name: only the diagonal was collected
}

// Width returns the number of columns.
func (in *Input) Width() int { return len(in.Square) }

// HasHessian reports whether the file has H.
func (in *Input) HasHessian() bool { return in.hessian.Name != "" }

// Hessian reads the upper triangle of H, row after row.
func (in *Input) Hessian() ([]float32, error) {
	if !in.HasHessian() {
		return nil, fmt.Errorf("%s: the input of %s has no products of its columns: collect the statistics with --hessian", in.file.Name(), in.Modules[0])
	}
	h, err := in.file.Floats(in.hessian.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.file.Name(), err)
	}
	return h, nil
}

// Statistics are those of all inputs of a model over a text.
type Statistics struct {
	Inputs []*Input // in the order of the layers

	file     *safetensors.File
	modules  map[string]*Input
	identity string
}

// Of returns the input of a module. ok is false if the model has no such module.
func (s *Statistics) Of(module string) (in *Input, ok bool) {
	in, ok = s.modules[module]
	return in, ok
}

// Amaxes returns the amax of the input of each module.
func (s *Statistics) Amaxes() map[string]float64 {
	amaxes := map[string]float64{}
	for module, in := range s.modules {
		amaxes[module] = in.Amax
	}
	return amaxes
}

// Close closes the file.
func (s *Statistics) Close() error { return s.file.Close() }

// Identity is a digest of all statistics but H, whose diagonal it has.
func (s *Statistics) Identity() string { return s.identity }

// A file of statistics is a safetensors file. Input k has the F32 tensors k.square, k.mean and perhaps
// k.hessian; the rest is JSON in the metadata.
const (
	metadataKey = "microscale.calibration"
	version     = 1
	square      = ".square"
	mean        = ".mean"
	hessian     = ".hessian"
)

// A header is the JSON of a file.
type header struct {
	Version int           `json:"version"`
	Inputs  []headerInput `json:"inputs"`
}

type headerInput struct {
	Modules []string `json:"modules"`
	Tokens  int64    `json:"tokens"`
	Amax    float64  `json:"amax"`
}

// IsFile reports whether a file is one of statistics, by the end of its name.
func IsFile(path string) bool { return strings.EqualFold(filepath.Ext(path), ".safetensors") }

// Read opens a file of statistics. The caller closes them.
func Read(path string) (*Statistics, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Statistics{file: f, modules: map[string]*Input{}}
	if err := s.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return s, nil
}

func (s *Statistics) read() error {
	text, ok := s.file.Metadata()[metadataKey]
	if !ok {
		return errors.New("no statistics of a calibration: make them with calibrate --out FILE.safetensors")
	}
	var h header
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return fmt.Errorf("metadata %s: %s", metadataKey, limits.Text(err.Error()))
	}
	if h.Version != version {
		return fmt.Errorf("statistics of version %d: this program reads version %d", h.Version, version)
	}
	digest := sha256.New()
	digest.Write([]byte(text))
	for k, one := range h.Inputs {
		in := &Input{Modules: one.Modules, Tokens: one.Tokens, Amax: one.Amax, file: s.file}
		if err := in.read(strconv.Itoa(k)); err != nil {
			return fmt.Errorf("input %d: %w", k, err)
		}
		for _, module := range in.Modules {
			if s.modules[module] != nil {
				return fmt.Errorf("input %d: the module %s has another input", k, limits.Text(module))
			}
			s.modules[module] = in
		}
		s.Inputs = append(s.Inputs, in)
		digest.Write(floatBytes(in.Square))
		digest.Write(floatBytes(in.Mean))
	}
	s.identity = hex.EncodeToString(digest.Sum(nil)[:16])
	return nil
}

// read reads the vectors of an input, and checks that it is whole.
func (in *Input) read(name string) (err error) {
	if len(in.Modules) == 0 || in.Tokens <= 0 || !(in.Amax > 0 && in.Amax <= math.MaxFloat32) {
		return fmt.Errorf("got %d modules, %d tokens, amax %g, want positive ones", len(in.Modules), in.Tokens, in.Amax)
	}
	if in.Square, err = in.file.Floats(name + square); err != nil {
		return err
	}
	if in.Mean, err = in.file.Floats(name + mean); err != nil {
		return err
	}
	n := int64(len(in.Square))
	if len(in.Mean) != len(in.Square) || n == 0 {
		return fmt.Errorf("got %d squares and %d means, want as many of each", len(in.Square), len(in.Mean))
	}
	for i, v := range in.Square {
		if m := in.Mean[i]; !(v >= 0 && v <= math.MaxFloat32) || m-m != 0 {
			return fmt.Errorf("column %d has the mean square %g and the mean %g, want finite ones", i, v, m)
		}
	}
	if h, ok := in.file.Lookup(name + hessian); ok {
		if want := n * (n + 1) / 2; h.Dtype != safetensors.F32 || h.Elements() != want {
			return fmt.Errorf("got %d %s products, want %d in F32", h.Elements(), h.Dtype, want)
		}
		in.hessian = h
	}
	return nil
}
