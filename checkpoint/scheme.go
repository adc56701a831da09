package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A scheme is how a convention stores the weights of one block format, and how its clients treat
// activations. A suffix that begins with a period replaces ".weight" at the end of the weight's
// name; others are appended.
type scheme struct {
	name   string // as its clients call it
	format quant.Format
	codes  string // suffix
	scales string // suffix
	global string // suffix
	input  string // suffix of the scales of activations, if clients read them
	shape  string // suffix of the dimensions of the weight, if a file has them

	direction   direction // of the global scale
	bare        string    // the profile of clients that read no global scale; a file has one only for a weight that came with it
	inputScale  direction // of the scale of activations: inverse if clients divide by it
	activations Activations
	inputs      quant.Format // of activations that clients quantize; zero: that of the weight, of blocks within a row

	words       safetensors.Dtype // dtype of the codes; 0: that of the elements
	scaleType   safetensors.Dtype // dtype of the scales; 0: that of the format's
	partial     bool              // the last block of a row may be partial: codes have the columns of the weight, without zeros
	anyColumns  bool              // clients decode such a block, even if the convention has wholeBlocks
	offset      bool              // integers are stored in offset binary: plus the magnitude of the most negative one
	highFirst   bool              // of two codes in a byte, the first is in the high half
	swizzled    bool              // scales are in tiles of 128×4, padded, as cuBLAS reads them
	packed      int64             // size in bytes of a separate last dimension of the codes; 0: none
	blocks      blockShape        // of the scales
	interleaved *ggml.Struct      // codes and scales are in one tensor of such structs
	scalar      []int64           // shape of scales of the whole tensor; nil: none, a scalar
}

// Activations is how clients treat the activations that a weight multiplies.
type Activations uint8

const (
	WeightOnly Activations = iota // nothing
	Dynamic                       // quantize them by their values at run time
	Static                        // quantize them by a scale that is stored
)

// String returns "weight-only", "dynamic" or "static".
func (a Activations) String() string { return [...]string{"weight-only", "dynamic", "static"}[a] }

// A direction is the number that a file holds for a decode scale of a whole tensor.
type direction uint8

const (
	decode  direction = iota // the scale
	inverse                  // 1/scale: clients divide by it
	amax                     // scale · 448 · 6: the amax for which this is the scale
)

// String returns the number, for documents.
func (d direction) String() string {
	return [...]string{"the scale", "its inverse", "its amax"}[d]
}

// amaxRatio is the ratio of an amax to the global scale of NVFP4: the largest element times the
// largest block scale.
var amaxRatio = float32(quant.NVFP4.Element.Max() * quant.NVFP4.Scale.Max())

// stored returns the number of a scale.
func (d direction) stored(scale float32) float32 {
	switch d {
	case inverse:
		return 1 / scale
	case amax:
		return float32(scale * amaxRatio)
	}
	return scale
}

// rounded returns the number of a scale that is not rounded yet.
func (d direction) rounded(scale float64) float32 {
	if d == inverse {
		return float32(1 / scale)
	}
	return d.stored(float32(scale))
}

// global returns the scale of a number.
func (d direction) global(stored float32) float32 {
	switch d {
	case inverse:
		return 1 / stored
	case amax:
		return stored / amaxRatio
	}
	return stored
}

// A blockShape is the shape of the scales of blocks.
type blockShape uint8

const (
	grid    blockShape = iota // [scale rows, scale columns]; that of scalars for the whole tensor
	line                      // [rows] for one scale per row
	grid4                     // [scale rows, 1, scale columns, 1]
	leading                   // [scale columns] behind all other dimensions of the weight
)

// Schemes returns the names of the schemes of f, the default first.
func (c *Convention) Schemes(f quant.Format) []string {
	var names []string
	for _, s := range c.schemes {
		if s.format.Name == f.Name {
			names = append(names, s.name)
		}
	}
	return names
}

// SchemeNames returns the names of the schemes of all conventions, without duplicates.
func SchemeNames() []string {
	var names []string
	seen := map[string]bool{}
	for _, c := range conventions {
		for _, s := range c.schemes {
			if s.name != "" && !seen[s.name] {
				seen[s.name] = true
				names = append(names, s.name)
			}
		}
	}
	return names
}

// With returns the convention with only the named scheme of f, and all of other formats. Case is ignored.
func (c *Convention) With(f quant.Format, name string) (*Convention, error) {
	for _, s := range c.schemes {
		if s.format.Name == f.Name && strings.EqualFold(s.name, name) {
			only := *c
			others := slices.DeleteFunc(slices.Clone(c.schemes), func(o scheme) bool { return o.format.Name == f.Name })
			only.schemes = append([]scheme{s}, others...)
			return &only, nil
		}
	}
	names := c.Schemes(f)
	if len(names) == 0 {
		return nil, fmt.Errorf("convention %s has no layout for %s", c, f)
	}
	return nil, fmt.Errorf("convention %s has no scheme %q for %s: use one of %s", c, name, f, strings.Join(names, ", "))
}

// WithActivations returns the convention with only the first scheme of f that treats activations
// as a, and all of other formats. ok is false if there is none.
func (c *Convention) WithActivations(f quant.Format, a Activations) (only *Convention, ok bool) {
	for _, s := range c.schemes {
		if s.format.Name == f.Name && s.activations == a {
			only, err := c.With(f, s.name)
			return only, err == nil
		}
	}
	return c, false
}

// Scheme returns the name of the first scheme of f and its treatment of activations. It returns
// "" and WeightOnly if f is not supported.
func (c *Convention) Scheme(f quant.Format) (name string, a Activations) {
	s := c.scheme(f)
	if s == nil {
		return "", WeightOnly
	}
	return s.name, s.activations
}

// InputFormat returns the format to which clients of the first scheme of f quantize activations; the zero Format if they do not.
func (c *Convention) InputFormat(f quant.Format) quant.Format { return c.scheme(f).inputFormat() }

func (s *scheme) inputFormat() quant.Format {
	switch {
	case s == nil || s.activations == WeightOnly:
		return quant.Format{}
	case s.inputs.Element != nil:
		return s.inputs
	case s.format.Name == quant.FP8Block.Name:
		return quant.FP8Vec128
	default:
		return s.format
	}
}

// GlobalHeld describes the number that a file holds for the global scale of f; "" if f has none.
func (c *Convention) GlobalHeld(f quant.Format) string {
	switch s := c.scheme(f); {
	case !f.Global:
		return ""
	case s.bare != "":
		return "none; converted: " + s.direction.String()
	default:
		return s.direction.String()
	}
}

// Profile returns the profile to quantize to f with where none is named: profile.For, or that of
// clients that read no global scale.
func (c *Convention) Profile(f quant.Format) (profile.Profile, error) {
	if s := c.scheme(f); s != nil && s.bare != "" {
		return profile.Lookup(s.bare)
	}
	return profile.For(f), nil
}

// Quantizer returns q as the clients of the convention need it: if they read no global scale,
// with an arithmetic without one, described by note. It returns an error if the profile or search
// of q requires a global scale.
func (c *Convention) Quantizer(q quant.Quantizer) (_ quant.Quantizer, note string, err error) {
	s := c.scheme(q.Format)
	if s == nil || s.bare == "" {
		return q, "", nil
	}
	if bare := q; !q.Arithmetic.FixesGlobal() {
		bare.Arithmetic = quant.BlockNearest
		if q.Arithmetic != (quant.Quantizer{}).Arithmetic || bare.Validate() != nil {
			return q, "", fmt.Errorf("clients of convention %s read no global scale of %s, and this profile or search is of one: choose profile "+
				"%s, or neither a profile nor a search", c, q.Format, s.bare)
		}
		q = bare
	}
	return q, fmt.Sprintf("clients of convention %s read no global scale of %s: blocks alone have scales, which are coarse where weights "+
		"are small (verify shows the error)", c, q.Format), nil
}

// partName returns the name of a part of a weight.
func partName(weight, suffix string) string {
	if strings.HasPrefix(suffix, ".") {
		return strings.TrimSuffix(weight, weightSuffix) + suffix
	}
	return weight + suffix
}

// storedGlobal returns the tensor of the global scale of a weight.
func (s *scheme) storedGlobal(weight string) Stored {
	return Stored{Part: Global, Spec: safetensors.Spec{Name: partName(weight, s.global), Dtype: safetensors.F32, Shape: s.scalar}}
}

// codesDtype returns the dtype of the codes that files are written with.
func (s *scheme) codesDtype() safetensors.Dtype {
	if s.words != 0 {
		return s.words
	}
	return storedDtype(s.format.Element)
}

func (s *scheme) scalesDtype() safetensors.Dtype {
	if s.scaleType != 0 {
		return s.scaleType
	}
	return storedDtype(s.format.Scale)
}

// codesShape returns the shape of the codes of a weight.
func (s *scheme) codesShape(shape []int64) []int64 {
	lead, cols := shape[:len(shape)-1], int(shape[len(shape)-1])
	if !s.partial {
		cols = s.format.PaddedCols(cols)
	}
	bytes, _ := s.format.Element.StoredBytes(cols)
	n := int64(bytes) * 8 / int64(s.codesDtype().Bits())
	out := append([]int64{}, lead...)
	switch {
	case s.packed > 0:
		return append(out, n/s.packed, s.packed)
	case s.blocks != leading:
		out = []int64{product(lead)}
	}
	return append(out, n)
}

// weightShape is the inverse of codesShape. ok is false if no weight has such codes.
func (s *scheme) weightShape(codes []int64, dtype safetensors.Dtype) (shape []int64, ok bool) {
	tail := 1
	if s.packed > 0 {
		tail = 2
	}
	if s.blocks != leading && len(codes) != 2 || len(codes) < 1+tail {
		return nil, false
	}
	cols := product(codes[len(codes)-tail:]) * int64(dtype.Bits()) / int64(s.format.Element.StoredBits())
	return append(append([]int64{}, codes[:len(codes)-tail]...), cols), true
}

// dimensions describes the number of dimensions of codes.
func (s *scheme) dimensions() string {
	switch {
	case s.blocks != leading:
		return "2"
	case s.packed > 0:
		return "3 or more"
	}
	return "2 or more"
}

// scalesShape returns the shape of the scales of a weight.
func (s *scheme) scalesShape(shape []int64) []int64 {
	if s.format.PerTensor() {
		return s.scalar
	}
	lead, cols := shape[:len(shape)-1], shape[len(shape)-1]
	r, c := s.format.ScaleShape(int(product(lead)), int(cols))
	switch s.blocks {
	case line:
		return []int64{int64(r)}
	case grid4:
		return []int64{int64(r), 1, int64(c), 1}
	case leading:
		return append(append([]int64{}, lead...), int64(c))
	}
	return []int64{int64(r), int64(c)}
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}
