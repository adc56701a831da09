package checkpoint

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// keptPrefix precedes the name of a weight in the metadata of a file, for numbers that its
// convention has no tensor for.
const keptPrefix = "microscale-kept."

// Kept has the numbers of a weight that the convention of its file has no tensor for, as bits of
// float32, so that a conversion back restores them. A scale has one number for each direction in
// which a file has held it.
type Kept struct {
	Global       *uint32 `json:"global,omitempty"`        // decode scale of the whole tensor
	Inverse      *uint32 `json:"inverse,omitempty"`       // its inverse
	Amax         *uint32 `json:"amax,omitempty"`          // the amax that it stands for
	Input        *uint32 `json:"input,omitempty"`         // decode scale of activations
	InputInverse *uint32 `json:"input_inverse,omitempty"` // its inverse
}

// slots are the fields for the numbers of a scale, by direction.
type slots map[direction]**uint32

func (k *Kept) globals() slots { return slots{decode: &k.Global, inverse: &k.Inverse, amax: &k.Amax} }

func (k *Kept) inputs() slots { return slots{decode: &k.Input, inverse: &k.InputInverse} }

// keep stores the number of a file.
func (s slots) keep(number float32, d direction) { *s[d] = ptr(math.Float32bits(number)) }

// find returns a kept number, preferably in direction d.
func (s slots) find(d direction) (number float32, of direction, ok bool) {
	for _, of := range []direction{d, decode, inverse, amax} {
		if slot := s[of]; slot != nil && *slot != nil {
			return math.Float32frombits(**slot), of, true
		}
	}
	return 0, d, false
}

// carry converts a number from one direction to another. It returns the kept number if that is
// equivalent, and keeps the number if the conversion back would not restore it.
func (s slots) carry(number float32, from, to direction) float32 {
	carried := to.stored(from.global(number))
	if kept, of, ok := s.find(to); from == to {
		carried = number
	} else if ok && of == to && from.stored(to.global(kept)) == number {
		carried = kept
	}
	*s[from], *s[to] = nil, nil // they are in a file
	if from != to && from.stored(to.global(carried)) != number {
		s.keep(number, from)
	}
	return carried
}

// Kept returns the kept numbers of the weight in the metadata of its file.
func (w *Weight) Kept() Kept {
	var k Kept
	text := w.parts[Codes].Shard.File.Metadata()[keptPrefix+w.Name]
	if text == "" || json.Unmarshal([]byte(text), &k) != nil {
		return Kept{}
	}
	return k
}

// Relabeled returns the tensors that store a quantized weight in c, with unchanged codes and
// block scales, and the numbers to keep in the metadata of its file, as a key and a value: those
// that c cannot hold, or not exactly. given is the decode scale of its activations; if it is nil,
// that of its file or metadata is used. c must support the weight, and a Static scheme needs a
// scale of activations.
func (w *Weight) Relabeled(c *Convention, given *float32) (stored []Stored, key, value string) {
	from, to := w.scheme, c.scheme(w.Format)
	kept := w.Kept()
	stored = c.Stored(w.Format, w.Name, w.Shape)
	if scales := w.parts[Scales]; scales != nil && w.Format.Scale == format.BF16 {
		for i := range stored {
			if stored[i].Part == Scales {
				stored[i].Dtype = scales.Dtype // of the model: BF16 may not hold the others
			}
		}
	}
	if w.Format.Global {
		number := kept.globals().carry(w.stored, from.direction, to.direction)
		if w.Global == 0 && to.direction == inverse && from.direction != inverse {
			number = 1 // not Inf: engines use the largest number of the modules that they fuse
		}
		if to.bare != "" && w.Global != 1 {
			stored = append(stored, to.storedGlobal(w.Name))
		}
		for i := range stored {
			if stored[i].Part == Global {
				stored[i].Value = GlobalBytes(number)
			}
		}
	}
	number, d, ok := w.input()
	if given != nil {
		number, d, ok = *given, decode, true
	}
	switch inputs := kept.inputs(); {
	case to.activations == Static:
		input := c.StoredInput(w.Format, w.Name, 1)
		input.Value = GlobalBytes(inputs.carry(number, d, to.inputScale))
		stored = append(stored, input)
	case ok:
		inputs.keep(number, d)
	}
	if kept == (Kept{}) {
		return stored, "", ""
	}
	text, err := json.Marshal(kept)
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return stored, keptPrefix + w.Name, string(text)
}

// input returns the number of the scale of activations of the weight and its direction, from its
// file or the kept numbers.
func (w *Weight) input() (number float32, d direction, ok bool) {
	d = w.scheme.inputScale
	if t := w.parts[Input]; t != nil && t.Elements() == 1 {
		var value [1]float32
		err := readDense(value[:], *t, Tile{To: 1, ToCol: 1}.DenseSpans(1))
		return value[0], d, err == nil
	}
	kept := w.Kept()
	return kept.inputs().find(d)
}

// InputScale returns the decode scale of the activations of the weight, from its file or the kept
// numbers. ok is false if there is none.
func (w *Weight) InputScale() (scale float32, ok bool) {
	number, d, ok := w.input()
	if !ok {
		return 0, false
	}
	return d.global(number), true
}

// HasInputScales reports whether every quantized weight of a block format has a scale of its inputs.
func (m *Model) HasInputScales(f quant.Format) bool {
	for _, w := range m.Weights {
		if w.Quantized() && w.Format.Name == f.Name {
			if _, ok := w.InputScale(); !ok {
				return false
			}
		}
	}
	return true
}

// Formats returns the block formats of the quantized weights, in the order of these.
func (m *Model) Formats() (formats []quant.Format) {
	for _, w := range m.Weights {
		same := func(f quant.Format) bool { return f.Name == w.Format.Name }
		if w.Quantized() && !slices.ContainsFunc(formats, same) {
			formats = append(formats, w.Format)
		}
	}
	return formats
}

// SchemeOf returns the scheme of the weights of a block format, by the name that clients use; "" if it is unknown.
func (m *Model) SchemeOf(f quant.Format) string {
	if m.planned != nil && m.Scheme == m.Convention.mixed {
		name, _ := m.Convention.Scheme(f)
		return name
	}
	for _, g := range m.described.groups {
		if g.format.Name == f.Name && g.scheme != "" {
			return g.scheme
		}
	}
	return m.Scheme
}

// ActivationsIn returns how clients treat the activations of the weights of a block format.
func (m *Model) ActivationsIn(f quant.Format) Activations {
	if s := m.schemeIn(f); s != nil {
		return s.activations
	}
	return WeightOnly
}

// InputFormat returns the format to which clients quantize the activations of the weights of a block format by the scheme of the
// checkpoint; the zero Format if they do not, or if it names no scheme.
func (m *Model) InputFormat(f quant.Format) quant.Format { return m.schemeIn(f).inputFormat() }

// schemeIn returns the scheme of the weights of a block format, or nil.
func (m *Model) schemeIn(f quant.Format) *scheme {
	name := m.SchemeOf(f)
	for i, s := range m.Convention.schemes {
		if s.format.Name == f.Name && strings.EqualFold(s.name, name) {
			return &m.Convention.schemes[i]
		}
	}
	return nil
}
