// Package checkpoint defines the conventions by which clients store quantized weights in a
// checkpoint: the names, dtypes and shapes of tensors, the configuration, and whether a file
// holds a scale, its inverse or an amax. For NVFP4 in compressed-tensors:
//
//	file                              here                     meaning
//	X.weight_packed  U8 [out, in/2] → quant.Tensor.Codes       two E2M1 codes per byte
//	X.weight_scale   F8_E4M3          quant.Tensor.Scales      decode scale of 16 elements
//	X.weight_global_scale  F32 [1]    1/quant.Tensor.Global    compressed-tensors stores the inverse E, and decodes code·(scale/E)
//
// Only this package converts inverses and amaxes, when it reads and writes files; all others see
// decode scales. The layouts are those of the clients' own readers and writers, such as
// compressed-tensors 0.14 (quantization/lifecycle/initialize.py and compressors/). This package
// defines plain.
package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A Convention is how one family of clients stores quantized weights: a row of data, and two
// functions for its configuration.
type Convention struct {
	Name string
	Doc  string

	schemes     []scheme
	also        []scheme       // layouts that are read, and never written
	linearOnly  bool           // weights are named X.weight and have two dimensions
	expertsOnly bool           // weights hold all experts of a layer
	joined      bool           // the weights of the experts of a layer are in one tensor for each projection (Joined)
	biased      bool           // of these, only those with biases, as in gpt-oss
	wholeBlocks bool           // columns are a multiple of the block, except in schemes with anyColumns; plain pads instead
	cache       *cacheNaming   // of the scales of a KV cache; nil: none
	metadata    bool           // the metadata of the file has the block format of each weight
	fileFormat  string         // "format" in the metadata of a file; "": pt
	oneFile     bool           // a checkpoint is one GGUF file, with its configuration and tokenizer
	unscaled    []quant.Format // formats without scales of weights to quantize
	mixes       bool           // the weights of a checkpoint may have several block formats
	mixed       string         // the scheme of one that has; "": none

	quantMethod string       // quantization_config.quant_method
	marks       []string     // members that identify a configuration without quant_method; nil: none do
	keys        []string     // members of config.json with the configuration; nil: quantization_config
	sidecar     string       // a file with the configuration; "": none
	hasIgnore   bool         // the configuration lists the unquantized modules
	patterns    ignoreSyntax // of this list
	byPattern   bool         // it is written as regular expressions (modulePatterns)

	// configure returns the configuration of a checkpoint, and the content of the sidecar.
	configure func(s *scheme, o Settings) (config, sidecar any)
	// recognize parses a configuration, or a sidecar.
	recognize func(config json.RawMessage) (description, error)
}

// Settings are the contents of a configuration besides the scheme.
type Settings struct {
	Ignore     []string // unquantized modules
	KVCache    bool     // scales of an FP8 KV cache are stored
	PowerOfTwo bool     // FP32 scales are powers of two

	Mixed       []Modules // the modules of each block format, if there are several
	Unquantized []string  // names of the modules on the ignore list, if there are several
}

// Modules are the modules whose weights have one block format.
type Modules struct {
	Format quant.Format
	Names  []string

	scheme *scheme // of the format, in the convention of the configuration
}

// A description is the content of a configuration.
type description struct {
	groups   []group  // the block formats of the quantized weights; none if each file specifies them
	scheme   string   // as clients call it
	ignore   []string // unquantized modules
	noIgnore bool     // there is no such list: the files show what is quantized
	targets  []string // quantized modules, if the convention has such a list
	faults   []string // what clients reject in it

	coded   []coded          // layouts of modules that are decoded as they are read
	modules map[string]coded // those of single modules, by their names
}

// A group is the block format of some modules. Which ones, their tensors say.
type group struct {
	format quant.Format
	static bool   // scales of activations are stored
	scheme string // as clients call it; "" if unknown
}

// add adds a block format. That of the first group is preferred where two fit.
func (d *description) add(f quant.Format, static bool, scheme string) {
	if !slices.Contains(d.groups, group{f, static, scheme}) {
		d.groups = append(d.groups, group{f, static, scheme})
	}
}

// static reports whether every group of a block format stores scales of activations.
func (d *description) static(f quant.Format) bool {
	any := false
	for _, g := range d.groups {
		if g.format.Name == f.Name {
			if !g.static {
				return false
			}
			any = true
		}
	}
	return any
}

func (d *description) fault(text string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(text, args...))
}

// readable describes a JSON value of the wrong type.
func readable(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case e.Field == "":
		return errors.New("it is not a JSON object")
	}
	return fmt.Errorf("%s is a JSON %s, but clients read another type", e.Field, e.Value)
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
	return nil, naming.Unknown("convention", name, names)
}

// DefaultConvention returns the default convention for storing the checkpoint in one block format, or in several:
// gpt-oss for experts with biases, compressed-tensors if it supports the formats, and plain
// otherwise, or if there is no config.json.
func (m *Model) DefaultConvention(formats ...quant.Format) *Convention {
	all := func(c *Convention) bool {
		return (len(formats) < 2 || c.mixes) && !slices.ContainsFunc(formats, func(f quant.Format) bool { return !c.Holds(f) })
	}
	biased := slices.ContainsFunc(m.Weights, (*Weight).ExpertsBiased)
	switch {
	case m.Source.Config == nil, biased && len(formats) > 1:
		return &plain
	case biased && all(&gptOSS):
		return &gptOSS
	case all(&compressedTensors):
		return &compressedTensors
	}
	return &plain
}

// String returns the convention's name.
func (c *Convention) String() string { return c.Name }

// Is reports whether c and d are the same convention, with any schemes.
func (c *Convention) Is(d *Convention) bool { return c != nil && d != nil && c.Name == d.Name }

// OneFile reports whether a checkpoint is one file, a GGUF file, with its configuration and tokenizer. It is false for nil.
func (c *Convention) OneFile() bool { return c != nil && c.oneFile }

// Holds reports whether the convention supports f.
func (c *Convention) Holds(f quant.Format) bool {
	return c.scheme(f) != nil || slices.ContainsFunc(c.unscaled, func(g quant.Format) bool { return g.Name == f.Name })
}

// Formats returns the formats that the convention supports.
func (c *Convention) Formats() []quant.Format {
	formats := slices.Clone(c.unscaled)
	for i, s := range c.schemes {
		if c.scheme(s.format) == &c.schemes[i] {
			formats = append(formats, s.format)
		}
	}
	return formats
}

// scheme returns the first scheme of f, or nil.
func (c *Convention) scheme(f quant.Format) *scheme {
	for i := range c.schemes {
		if c.schemes[i].format.Name == f.Name {
			return &c.schemes[i]
		}
	}
	return nil
}

// Mixes reports whether the weights of a checkpoint may have several block formats.
func (c *Convention) Mixes() bool { return c.mixes }

// MixedScheme returns the scheme of a checkpoint whose weights have several block formats; "" if it has no name.
func (c *Convention) MixedScheme() string { return c.mixed }

// LinearOnly reports whether clients read quantized weights in linear modules only, not in
// embeddings or convolutions.
func (c *Convention) LinearOnly() bool { return c.linearOnly }

// Rejects returns why the convention does not support a weight in format f, or "".
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
	if why := c.RejectsColumns(f, shape[len(shape)-1]); why != "" {
		return why
	}
	s := c.scheme(f)
	switch {
	case c.expertsOnly && (len(shape) != 3 || !family.IsFused(name)):
		return fmt.Sprintf("not fused experts, and %s quantizes nothing else", c)
	case s == nil:
	case s.blocks == grid4 && shape[0]%int64(f.Block.Rows) != 0: // vLLM's loader
		return fmt.Sprintf("%d rows are not a multiple of %d", shape[0], f.Block.Rows)
	}
	return ""
}

// RejectsColumns returns why the convention does not support rows of cols columns in format f, or "".
func (c *Convention) RejectsColumns(f quant.Format, cols int64) string {
	s := c.scheme(f)
	switch {
	case c.wholeBlocks && (s == nil || !s.anyColumns) && int64(f.PaddedCols(int(cols))) != cols:
		return fmt.Sprintf("%d columns are not a multiple of %d", cols, f.Block.Cols)
	case s != nil && s.words != 0 && cols*int64(f.Element.StoredBits())%int64(s.words.Bits()) != 0:
		return fmt.Sprintf("%d columns are not a multiple of %d, as %s has them", cols, s.words.Bits()/f.Element.StoredBits(), s.words)
	case s != nil && s.interleaved != nil && cols%int64(s.interleaved.Width()) != 0:
		return fmt.Sprintf("%d columns are not a multiple of %d, as %s has them", cols, s.interleaved.Width(), s.interleaved)
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
	Biases     // of blocks: read, and dropped with the weight's codes
	Dimensions // of the weight, as integers
	Input      // scales of activations: read, and dropped with the weight's codes
	groups     // the group of each column, of layouts that are decoded as they are read; of others, a tensor that reading does not need
	rotation   // the matrix that rows were multiplied by, of such layouts; the last that a Weight keeps
	Cache      // scale of the KV cache that a module writes
	Blocks     // codes with their scales between them, in place of both
)

// A Stored is one tensor of a quantized weight in a file.
type Stored struct {
	Part Part
	safetensors.Spec
	Value []byte // its bytes, if they are known before any data is read
}

// Stored returns the tensors of a weight of the given shape in format f, except for scales of
// activations. The convention must support f and the weight.
func (c *Convention) Stored(f quant.Format, weight string, shape []int64) []Stored {
	return c.scheme(f).tensors(weight, shape)
}

// tensors is Convention.Stored.
func (s *scheme) tensors(weight string, shape []int64) (stored []Stored) {
	f := s.format
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
	if f.Global && s.bare == "" {
		stored = append(stored, s.storedGlobal(weight))
	}
	if s.shape != "" {
		dims := Stored{Part: Dimensions, Spec: spec(s.shape, safetensors.I64, []int64{int64(len(shape))})}
		for _, n := range shape {
			dims.Value = binary.LittleEndian.AppendUint64(dims.Value, uint64(n))
		}
		stored = append(stored, dims)
	}
	return stored
}

// Bytes returns the bytes of the codes or the block scales of t, a part of a weight, in a file: of scales as values of
// dtype. It may change the codes of t.
func (c *Convention) Bytes(t *quant.Tensor, p Part, dtype safetensors.Dtype) ([]byte, error) {
	if p == Codes {
		c.scheme(t.Format).flip(t)
		return t.Codes, nil
	}
	f, dense := dtype.Dense()
	if !dense || f == t.Format.Scale {
		return t.ScaleBytes(), nil
	}
	raw := make([]byte, f.StoredBits()/8*len(t.Scales32))
	return raw, tensor.ToBytes(raw, t.Scales32, f)
}

// flip inverts the sign bits of the codes of t if files have them in offset binary. It is its own inverse.
func (s *scheme) flip(t *quant.Tensor) {
	if !s.offset {
		return
	}
	sign := byte(1<<7 | 1<<(t.Format.Element.Bits()-1)) // of the codes in a byte
	for i := range t.Codes {
		t.Codes[i] ^= sign
	}
}

// StoredGlobal returns the number that a file holds for the global scale of t, which q quantized:
// the scale, its inverse (quant.Quantizer.GlobalInverse) if clients divide by it, or its amax.
func (c *Convention) StoredGlobal(q quant.Quantizer, t *quant.Tensor) float32 {
	s := c.scheme(t.Format)
	if s.direction == inverse {
		return q.GlobalInverse(t.Amax)
	}
	return s.direction.stored(t.Global)
}

// Decoded returns t with the decode scales that clients compute from the codes, the block scales
// and the stored number of the global scale. It shares unchanged codes and scales with t.
func (c *Convention) Decoded(t *quant.Tensor, stored float32) *quant.Tensor {
	return c.scheme(t.Format).decoded(t, stored)
}

// decoded is Convention.Decoded.
func (s *scheme) decoded(t *quant.Tensor, stored float32) *quant.Tensor {
	switch {
	case !t.Format.Global:
	case s.direction == inverse && stored == 0: // not NaN
		copied := *t
		copied.Global = 0
		return &copied
	case s.direction == inverse:
		return divided(t, stored)
	case s.direction == amax:
		copied := *t
		copied.Global = s.direction.global(stored)
		return &copied
	}
	return t
}

// divided returns t with the decode scales of clients that divide by the inverse of a global
// scale, float32(scale/divisor). The product of the scale and float32(1/divisor) has other bits
// for many pairs.
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

// Metadata returns the metadata of a weight, a key and a value. ok is false if the convention has
// none.
func (c *Convention) Metadata(f quant.Format, weight string, shape []int64, dtype safetensors.Dtype) (key, value string, ok bool) {
	if !c.metadata {
		return "", "", false
	}
	return plainMetadata(f, weight, shape, dtype)
}
