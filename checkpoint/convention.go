// Package checkpoint holds the conventions by which clients store quantized
// weights in a checkpoint, as rows: which tensors with which names, dtypes and
// shapes, which configuration, and which way round each scale is.
//
//	file                              here                     meaning
//	X.weight_packed  U8 [out, in/2] → quant.Tensor.Codes       two E2M1 codes per byte
//	X.weight_scale   F8_E4M3          quant.Tensor.Scales      decode scale of 16 elements
//	X.weight_global_scale  F32 [1]    1/quant.Tensor.Global    compressed-tensors stores the inverse E, and decodes code·(scale/E)
//
// Scales that point the other way exist only here, at the moment of reading and
// writing. The layouts are those that the clients' own readers and writers
// define: compressed-tensors 0.14 (quantization/lifecycle/initialize.py and
// compressors/) and, for plain, this package.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Convention is how one family of clients stores quantized weights.
type Convention struct {
	Name string
	Doc  string

	quantMethod string // quantization_config.quant_method
	schemes     []scheme
	linearOnly  bool // weights are named X.weight and have two dimensions
	wholeBlocks bool // columns are a multiple of the block; plain pads instead
	hasIgnore   bool // the configuration lists what is not quantized
	metadata    bool // the block format of each weight is in the file's metadata

	// configure returns the value of quantization_config.
	configure func(f quant.Format, ignore []string) any
	// recognize returns what a quantization_config says.
	recognize func(config json.RawMessage) (description, error)
}

// A description is what a quantization_config says.
type description struct {
	format  quant.Format // of the quantized weights; the zero Format where each file says for itself
	ignore  []string     // modules that are not quantized
	targets []string     // modules that are, where the convention has such a list
	static  bool         // scales of activations are stored
	faults  []string     // what clients refuse in it
}

func (d *description) fault(text string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(text, args...))
}

// readable says what is wrong with JSON that is not of the type that is asked for.
func readable(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case e.Field == "":
		return errors.New("it is not a JSON object")
	}
	return fmt.Errorf("%s is a JSON %s, and of another type where clients read it", e.Field, e.Value)
}

// A scheme is the tensors of one block format: suffixes to the weight's name.
type scheme struct {
	format  quant.Format
	codes   string
	scales  string
	global  string
	divides bool   // the file holds the inverse of the global scale, and clients divide by it
	input   string // scales of the activations that meet the weight, as a suffix to its module's name
}

var conventions = []*Convention{&compressedTensors, &plain}

// Conventions returns the conventions in their order.
func Conventions() []*Convention { return append([]*Convention(nil), conventions...) }

// LookupConvention finds a convention by its name. Case is ignored.
func LookupConvention(name string) (*Convention, error) {
	names := make([]string, len(conventions))
	for i, c := range conventions {
		names[i] = c.Name
		if strings.EqualFold(c.Name, name) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("unknown convention %q: use one of %s", name, strings.Join(names, ", "))
}

// DefaultConvention returns the convention of a directory of block format f: the
// first that holds it.
func DefaultConvention(f quant.Format) *Convention {
	for _, c := range conventions {
		if c.Holds(f) {
			return c
		}
	}
	return &plain
}

// String returns the convention's name.
func (c *Convention) String() string { return c.Name }

// Holds reports whether the convention has a layout for f.
func (c *Convention) Holds(f quant.Format) bool {
	_, ok := c.scheme(f)
	return ok
}

// Formats returns the block formats that the convention holds.
func (c *Convention) Formats() []quant.Format {
	formats := make([]quant.Format, len(c.schemes))
	for i, s := range c.schemes {
		formats[i] = s.format
	}
	return formats
}

func (c *Convention) scheme(f quant.Format) (scheme, bool) {
	for _, s := range c.schemes {
		if s.format.Name == f.Name {
			return s, true
		}
	}
	return scheme{}, false
}

// HasIgnore reports whether the configuration lists the modules that are not quantized.
func (c *Convention) HasIgnore() bool { return c.hasIgnore }

// LinearOnly reports whether clients look for quantized weights in linear modules
// alone: not in embeddings or convolutions.
func (c *Convention) LinearOnly() bool { return c.linearOnly }

// Refuses returns why a weight cannot be stored in format f, or "".
func (c *Convention) Refuses(f quant.Format, name string, shape []int64) string {
	switch {
	case len(shape) != 2:
		return fmt.Sprintf("%d dimensions", len(shape))
	case shape[0] == 0 || shape[1] == 0:
		return "empty"
	case c.linearOnly && !strings.HasSuffix(name, weightSuffix):
		return "name does not end in " + weightSuffix
	case c.wholeBlocks && f.StoredCols(int(shape[1])) != int(shape[1]):
		return fmt.Sprintf("%d columns are not a multiple of %d", shape[1], f.Block.Cols)
	}
	return ""
}

const weightSuffix = ".weight"

// Part is a component of a quantized weight.
type Part uint8

const (
	Codes Part = iota
	Scales
	Global
	Input // scales of activations: read, and dropped with the weight's codes
)

// A Stored is one tensor of a quantized weight in a file.
type Stored struct {
	Part Part
	safetensors.Spec
}

// Stored returns the tensors that a weight of the given shape takes in format f.
// The convention holds f and does not refuse the weight.
func (c *Convention) Stored(f quant.Format, weight string, rows, cols int) []Stored {
	s, _ := c.scheme(f)
	stored := []Stored{
		{Codes, safetensors.Spec{Name: weight + s.codes, Dtype: storedDtype(f.Element), Shape: codesShape(f, rows, cols)}},
		{Scales, safetensors.Spec{Name: weight + s.scales, Dtype: storedDtype(f.Scale), Shape: scaleShape(f, rows, cols)}},
	}
	if f.Global {
		stored = append(stored, Stored{Global, safetensors.Spec{Name: weight + s.global, Dtype: safetensors.F32, Shape: []int64{1}}})
	}
	return stored
}

// StoredGlobal returns the number that a file holds for the global scale of t,
// which q made: the scale, or its inverse (quant.Quantizer.GlobalInverse) where
// clients divide by it.
func (c *Convention) StoredGlobal(q quant.Quantizer, t *quant.Tensor) float32 {
	if s, _ := c.scheme(t.Format); s.divides {
		return q.GlobalInverse(t.Amax)
	}
	return t.Global
}

// Decoded returns t with the decode scales that clients compute from a file that
// has its codes and scales, and stored for its global scale. Codes and scales
// are shared with t where they are the same.
func (c *Convention) Decoded(t *quant.Tensor, stored float32) *quant.Tensor {
	if s, _ := c.scheme(t.Format); s.divides {
		return divided(t, stored)
	}
	return t
}

// divided returns t with the decode scales of clients that divide by the inverse
// of a global scale, float32(scale/divisor): the product of the scale and
// float32(1/divisor) has other bits on many pairs of them.
func divided(t *quant.Tensor, divisor float32) *quant.Tensor {
	f := t.Format
	scales := make([]float32, len(t.Scales))
	f.Scale.DecodeSlice(scales, t.Scales)
	for i := range scales {
		scales[i] /= divisor
	}
	f.Scale, f.Global = format.F32, false
	return &quant.Tensor{Format: f, Direction: t.Direction, Shape: t.Shape, Codes: t.Codes, Scales32: scales, Global: 1, Amax: t.Amax}
}

// Configuration returns the value of quantization_config for a checkpoint whose
// weights are in f but for the ignored modules.
func (c *Convention) Configuration(f quant.Format, ignore []string) any {
	return c.configure(f, ignore)
}

// configurationKey is the metadata key under which a file has what config.json
// would say, where there is none. Clients do not read it there; Read does.
const configurationKey = "quantization_config"

// FileMetadata returns what the metadata of a file says instead of the
// config.json of a checkpoint that has none, as a key and a value; ok is false
// where the metadata describes each weight.
func (c *Convention) FileMetadata(f quant.Format, ignore []string) (key, value string, ok bool) {
	if c.metadata {
		return "", "", false
	}
	text, err := json.Marshal(c.configure(f, ignore))
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return configurationKey, string(text), true
}

// Metadata returns what the metadata of a file says of a weight, as a key and a
// value; ok is false where the convention says nothing there.
func (c *Convention) Metadata(f quant.Format, weight string, shape []int64, dtype safetensors.Dtype) (key, value string, ok bool) {
	if !c.metadata {
		return "", "", false
	}
	return plainMetadata(f, weight, shape, dtype)
}

func codesShape(f quant.Format, rows, cols int) []int64 {
	bytes, _ := f.Element.StoredBytes(f.StoredCols(cols))
	return []int64{int64(rows), int64(bytes)}
}

// scaleShape returns the shape of the scales: [1] for one of the whole tensor.
func scaleShape(f quant.Format, rows, cols int) []int64 {
	if f.PerTensor() {
		return []int64{1}
	}
	r, c := f.ScaleShape(rows, cols)
	return []int64{int64(r), int64(c)}
}
