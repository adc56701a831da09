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
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Convention is how one family of clients stores quantized weights.
type Convention struct {
	Name string
	Doc  string

	quantMethod string                            // quantization_config.quant_method
	claims      func(config json.RawMessage) bool // whether a quantization_config without quant_method is of this convention; nil: never
	schemes     []scheme
	linearOnly  bool                                               // weights are named X.weight and have two dimensions
	wholeBlocks bool                                               // columns are a multiple of the block; plain pads instead
	biased      bool                                               // of experts of a layer it holds those with biases alone, as gpt-oss has them
	hasIgnore   bool                                               // the configuration lists what is not quantized
	metadata    bool                                               // the block format of each weight is in the file's metadata
	refuses     func(s *scheme, name string, shape []int64) string // why a weight cannot be held, beyond the above; nil: nothing
	fileFormat  string                                             // "format" in the metadata of a file; "": pt
	keys        []string                                           // members of config.json that hold the configuration; nil: quantization_config
	sidecar     string                                             // a file that repeats the configuration
	cache       *cacheNaming                                       // of the scales of a KV cache; nil: there are none
	gguf        bool                                               // stored in a GGUF file, not in safetensors files

	// configure returns the configuration of a checkpoint.
	configure func(s *scheme, o Settings) any
	// configureSidecar returns the content of the sidecar.
	configureSidecar func(s *scheme, o Settings) any
	// recognize returns what a configuration says: of config.json, or of the sidecar.
	recognize func(config json.RawMessage) (description, error)
	// matches returns whether a module is on an ignore list; nil: exact names and
	// "re:" patterns.
	matches func(ignore []string) func(module string) bool
}

// Settings are what a configuration says beside the scheme.
type Settings struct {
	Ignore     []string // modules that are not quantized
	KVCache    bool     // the scales of an FP8 KV cache are stored
	PowerOfTwo bool     // FP32 scales are powers of two
}

// A description is what a configuration says.
type description struct {
	format   quant.Format // of the quantized weights; the zero Format where each file says for itself
	scheme   string       // as its clients call it
	ignore   []string     // modules that are not quantized
	noIgnore bool         // it has no such list, and the files alone say what is quantized
	targets  []string     // modules that are, where the convention has such a list
	static   bool         // scales of activations are stored
	faults   []string     // what clients refuse in it
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

var conventions = []*Convention{&compressedTensors, &modelOpt, &deepSeek, &mxfp8, &gptOSS, &quark, &mlx, &ggufConvention, &plain}

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

// DefaultConvention returns the convention in which a checkpoint is stored in block
// format f unless another is asked for: that of the program that quantizes such
// models, compressed-tensors where it holds the format, and plain for the rest and
// where there is no config.json.
func (m *Model) DefaultConvention(f quant.Format) *Convention {
	biased := func(w *Weight) bool { return w.experts != nil && w.experts.biased }
	switch {
	case m.Source.Config == nil:
		return &plain
	case gptOSS.Holds(f) && slices.ContainsFunc(m.Weights, biased):
		return &gptOSS
	case compressedTensors.Holds(f):
		return &compressedTensors
	}
	return &plain
}

// String returns the convention's name.
func (c *Convention) String() string { return c.Name }

// Is reports whether c and d are the same convention, whatever their schemes.
func (c *Convention) Is(d *Convention) bool { return c != nil && d != nil && c.Name == d.Name }

// Holds reports whether the convention has a layout for f.
func (c *Convention) Holds(f quant.Format) bool { return c.scheme(f) != nil }

// Formats returns the block formats that the convention holds, each once.
func (c *Convention) Formats() []quant.Format {
	var formats []quant.Format
	for i, s := range c.schemes {
		if c.scheme(s.format) == &c.schemes[i] {
			formats = append(formats, s.format)
		}
	}
	return formats
}

// scheme returns the first scheme of f, nil where there is none.
func (c *Convention) scheme(f quant.Format) *scheme {
	for i := range c.schemes {
		if c.schemes[i].format.Name == f.Name {
			return &c.schemes[i]
		}
	}
	return nil
}

// HasIgnore reports whether the configuration lists the modules that are not quantized.
func (c *Convention) HasIgnore() bool { return c.hasIgnore }

// LinearOnly reports whether clients look for quantized weights in linear modules
// alone: not in embeddings or convolutions.
func (c *Convention) LinearOnly() bool { return c.linearOnly }

// Refuses returns why a weight cannot be stored in format f, or "".
func (c *Convention) Rejects(f quant.Format, name string, shape []int64) string {
	switch {
	case len(shape) < 2 || c.linearOnly && len(shape) != 2:
		return fmt.Sprintf("%d dimensions", len(shape))
	case slices.Contains(shape, 0):
		return "empty"
	case c.linearOnly && !strings.HasSuffix(name, weightSuffix):
		return "name does not end in " + weightSuffix
	}
	if block := f.Block.Rows; len(shape) > 2 && block > 0 && shape[len(shape)-2]%int64(block) != 0 {
		return fmt.Sprintf("a block of %d rows would lie in two matrices of %d", block, shape[len(shape)-2])
	}
	if cols := int(shape[len(shape)-1]); c.wholeBlocks && f.StoredCols(cols) != cols {
		return fmt.Sprintf("%d columns are not a multiple of %d", cols, f.Block.Cols)
	}
	if s := c.scheme(f); c.refuses != nil && s != nil {
		return c.refuses(s, name, shape)
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
	Input  // scales of activations: read, and dropped with the weight's codes
	Cache  // scale of the KV cache that a module writes
	Blocks // codes with their scales between them, in place of both
)

// A Stored is one tensor of a quantized weight in a file.
type Stored struct {
	Part Part
	safetensors.Spec
	Value []byte // its bytes, where they are known before any data is read
}

// Stored returns the tensors that a weight of the given shape takes in format f,
// but for scales of activations. The convention holds f and does not refuse the
// weight.
func (c *Convention) Stored(f quant.Format, weight string, shape []int64) (stored []Stored) {
	s := c.scheme(f)
	spec := func(suffix string, dtype safetensors.Dtype, shape []int64) safetensors.Spec {
		return safetensors.Spec{Name: partName(weight, suffix), Dtype: dtype, Shape: shape}
	}
	if b := s.interleaved; b != nil {
		rows, cols := product(shape[:len(shape)-1]), shape[len(shape)-1]
		blocks := spec(s.codes, safetensors.U8, []int64{rows, cols / int64(b.Width()) * int64(b.Bytes())})
		stored = []Stored{{Part: Blocks, Spec: blocks}}
	} else {
		stored = []Stored{
			{Part: Codes, Spec: spec(s.codes, s.codesDtype(), s.codesShape(shape))},
			{Part: Scales, Spec: spec(s.scales, s.scalesDtype(), s.scalesShape(shape))},
		}
	}
	if f.Global && !s.bare {
		stored = append(stored, s.storedGlobal(weight))
	}
	return stored
}

// StoredGlobal returns the number that a file holds for the global scale of t,
// which q made: the scale, its inverse (quant.Quantizer.GlobalInverse) where
// clients divide by it, or the amax that it stands for.
func (c *Convention) StoredGlobal(q quant.Quantizer, t *quant.Tensor) float32 {
	s := c.scheme(t.Format)
	if s.direction == inverse {
		return q.GlobalInverse(t.Amax)
	}
	return s.direction.stored(t.Global)
}

// Decoded returns t with the decode scales that clients compute from a file that
// has its codes and scales, and stored for its global scale. Codes and scales
// are shared with t where they are the same.
func (c *Convention) Decoded(t *quant.Tensor, stored float32) *quant.Tensor {
	switch s := c.scheme(t.Format); {
	case !t.Format.Global:
	case s.direction == inverse:
		return divided(t, stored)
	case s.direction == amax:
		copied := *t
		copied.Global = s.direction.global(stored)
		return &copied
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

// Metadata returns what the metadata of a file says of a weight, as a key and a
// value; ok is false where the convention says nothing there.
func (c *Convention) Metadata(f quant.Format, weight string, shape []int64, dtype safetensors.Dtype) (key, value string, ok bool) {
	if !c.metadata {
		return "", "", false
	}
	return plainMetadata(f, weight, shape, dtype)
}
