package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Model is a checkpoint read through its convention: the weights as they were before
// quantization, with the tensors that hold their parts.
type Model struct {
	Source     *hf.Checkpoint
	Convention *Convention // nil if nothing is quantized
	Scheme     string      // of the weights, by the name that clients use; "" if unknown
	Weights    []*Weight   // in the order of the files
	Ignore     []string    // modules that the configuration lists as not quantized
	Unread     []string    // unsupported types of tensors in a GGUF file
	Decoded    []string    // types of tensors that are quantized in a GGUF file and read as F32
	Problems   []Problem   // violations of the convention; empty for a sound checkpoint

	// Architecture is general.architecture of a GGUF file, "" for other files.
	Architecture string

	fileBytes int64     // of a GGUF file; 0 for others
	viewed    *GGUFView // nil for other files

	byName     map[string]*Weight
	family     *family.Model
	configured bool // a quantization_config describes the quantized weights
}

// A Problem is a fault in the structure of a checkpoint.
type Problem struct {
	Tensor string // or module; empty if it concerns the whole checkpoint
	Text   string // the fault and its remedy
	Mended bool   // a conversion repairs it
}

func (p Problem) String() string {
	if p.Tensor == "" {
		return p.Text
	}
	return p.Tensor + ": " + p.Text
}

// Read is ReadContext without a context.
func Read(source *hf.Checkpoint) *Model {
	m, _ := ReadContext(context.Background(), source) // the context does not end
	return m
}

// ReadContext recognizes the convention of a checkpoint and finds its weights. It reads headers, and
// the data of global scales. Faults are reported as Problems; their tensors become unquantized
// weights. The only error is that of ctx, which ends it between two reads.
func ReadContext(ctx context.Context, source *hf.Checkpoint) (*Model, error) {
	tensors := source.Tensors()
	m := &Model{Source: source, byName: make(map[string]*Weight, len(tensors)), Weights: make([]*Weight, 0, len(tensors))}
	m.findView()
	known := m.recognize()
	used := map[string]bool{} // tensors that are parts of a quantized weight
	for i := range tensors {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if used[tensors[i].Name] {
			continue
		}
		if w := m.assemble(&tensors[i], known); w != nil {
			m.add(w)
			for _, part := range w.parts {
				if part != nil {
					used[part.Name] = true
				}
			}
		}
	}
	for i := range tensors {
		if !used[tensors[i].Name] {
			m.add(m.unquantized(&tensors[i]))
		}
	}
	if len(used) > 0 { // else they are in that order already
		m.order()
	}
	m.check(known)
	m.view()
	return m, ctx.Err()
}

// Lookup returns the weight of a name.
func (m *Model) Lookup(name string) (*Weight, bool) {
	w, ok := m.byName[name]
	return w, ok
}

// Quantized returns the number of quantized weights.
func (m *Model) Quantized() int {
	n := 0
	for _, w := range m.Weights {
		if w.Quantized() {
			n++
		}
	}
	return n
}

func (m *Model) add(w *Weight) {
	m.Weights = append(m.Weights, w)
	m.byName[w.Name] = w
}

// order sorts the weights by their first tensor in the files.
func (m *Model) order() {
	place := map[string]int{}
	for i, t := range m.Source.Tensors() {
		place[t.Name] = i
	}
	slices.SortStableFunc(m.Weights, func(a, b *Weight) int {
		return place[a.parts[Codes].Name] - place[b.parts[Codes].Name]
	})
}

// known is the content of configuration and metadata, before tensors are read.
type known struct {
	description
	weights map[string]quantized // those that metadata describes
}

// recognize finds the convention and the description of the weights.
func (m *Model) recognize() known {
	k := known{weights: map[string]quantized{}}
	for _, shard := range m.Source.Shards() {
		described, err := parsePlainMetadata(shard.File.Metadata())
		if err != nil {
			m.fault("", "%s: %v", shard.Name, err)
			return k
		}
		maps.Copy(k.weights, described)
	}
	raw, ok := m.configuration()
	if !ok {
		if len(k.weights) > 0 {
			m.Convention = &plain
		}
		return k
	}
	var method struct {
		QuantMethod *string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &method); err != nil {
		m.fault("", "quantization_config is not a JSON object; fetch config.json again")
		return k
	}
	var methods []string
	for _, c := range conventions {
		if c.gguf { // no configuration
			continue
		}
		if c.quantMethod != "" {
			methods = append(methods, c.quantMethod)
		}
		switch {
		case method.QuantMethod != nil && *method.QuantMethod != c.quantMethod:
			continue
		case method.QuantMethod == nil && !c.claims(raw):
			continue
		}
		m.describe(c, raw, &k)
		return k
	}
	for _, c := range conventions {
		if _, ok := m.Source.Companion(c.sidecar); ok && method.QuantMethod == nil {
			m.describe(c, raw, &k)
			return k
		}
	}
	m.fault("", "quantization_config names quant_method %q, which is not supported: use one of %s", deref(method.QuantMethod), strings.Join(methods, ", "))
	return k
}

// describe sets the convention and parses its configuration.
func (m *Model) describe(c *Convention, raw json.RawMessage, k *known) {
	d, err := c.recognize(raw)
	if err != nil {
		m.fault("", "quantization_config: %v", err)
		return
	}
	m.Convention, m.Scheme, m.Ignore, m.configured, k.description = c, d.scheme, d.ignore, true, d
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// configuration returns the description of the quantization: from config.json, else from a
// sidecar, else, if there is no config.json, from the metadata of a file.
func (m *Model) configuration() (raw json.RawMessage, ok bool) {
	if raw, ok := m.Source.QuantizationConfig(); ok {
		return raw, true
	}
	for _, c := range conventions {
		if raw, ok := m.Source.Companion(c.sidecar); ok && c.sidecar != "" {
			return raw, true
		}
	}
	for _, shard := range m.Source.Shards() {
		if text, ok := shard.File.Metadata()[configurationKey]; ok && m.Source.Config == nil {
			return json.RawMessage(text), true
		}
	}
	return nil, false
}

// assemble returns the quantized weight with the codes t, or nil.
func (m *Model) assemble(t *hf.Tensor, k known) *Weight {
	if m.Convention == nil {
		return nil
	}
	name, q := t.Name, quantized{format: k.format}
	if m.Convention.metadata {
		var ok bool
		if q, ok = k.weights[t.Name]; !ok {
			return nil
		}
	}
	s := m.Convention.scheme(q.format)
	if s == nil {
		return nil
	}
	name, ok := strings.CutSuffix(name, s.codes)
	if !ok || m.Convention.linearOnly && !strings.HasSuffix(name, weightSuffix) {
		return nil
	}
	scales, ok := m.Source.Lookup(partName(name, s.scales))
	if !ok {
		return nil // check reports it
	}
	w := &Weight{Name: name, Shape: q.shape, Dtype: q.dtype, Format: q.format, Global: 1, convention: m.Convention,
		parts: parts{Codes: t, Scales: &scales}}
	if w.Shape == nil {
		if w.Shape, ok = s.shape(t.Shape, t.Dtype); !ok {
			m.fault(t.Name, "codes of a %s weight have %s dimensions, not %d", q.format, s.dimensions(), len(t.Shape))
			return nil
		}
		w.Dtype = parseTorchDtype(m.Source.TorchDtype())
	}
	if !m.fits(w) {
		return nil
	}
	m.setStack(w, false)
	if q.format.Global {
		global, ok := m.Source.Lookup(partName(name, s.global))
		switch {
		case ok:
			w.parts[Global] = &global
			if err := m.readGlobal(w, s); err != nil {
				m.fault(global.Name, "%v", err)
				return nil
			}
		case s.bare != "": // it is 1
			w.stored = s.direction.stored(w.Global)
		default:
			m.fault(name, "its global scale %s is missing; the file is incomplete, quantize it again", partName(name, s.global))
			return nil
		}
	}
	if s.input != "" {
		if input, ok := m.Source.Lookup(partName(name, s.input)); ok {
			w.parts[Input] = &input
		}
	}
	return w
}

// fault adds a Problem.
func (m *Model) fault(tensor, text string, args ...any) {
	m.Problems = append(m.Problems, Problem{Tensor: tensor, Text: limits.Text(fmt.Sprintf(text, args...))})
}

// fits reports whether the codes and scales of w have the dtypes and shapes that follow from its
// format and shape.
func (m *Model) fits(w *Weight) bool {
	fits := true
	for _, want := range m.Convention.Stored(w.Format, w.Name, w.Shape) {
		have, ok := w.Part(want.Part)
		if !ok {
			continue
		}
		if want.Part == Scales && acceptable(have.Dtype, want.Dtype) {
			want.Dtype = have.Dtype
		}
		if want.Part == Scales && sameScales(w.Format, have.Shape, want.Shape) {
			want.Shape = have.Shape
		}
		if have.Dtype != want.Dtype || !slices.Equal(have.Shape, want.Shape) {
			m.fault(have.Name, "it is %s %v, and a %s weight of shape %v needs %s %v; the file is damaged or of another convention",
				have.Dtype, have.Shape, w.Format, w.Shape, want.Dtype, want.Shape)
			fits = false
		}
	}
	return fits
}

// sameScales reports whether two shapes hold the same scales if clients differ in dimensions:
// [] and [1] for one of the tensor, [n] and [n, 1] for one per row.
func sameScales(f quant.Format, a, b []int64) bool {
	dims := 2
	switch {
	case f.PerTensor():
		dims = 1
	case f.Block.Cols != 0:
		return false
	}
	fits := func(shape []int64) bool {
		return len(shape) <= dims && (len(shape) < 2 || shape[1] == 1) && (len(shape) > 0 || dims == 1)
	}
	return fits(a) && fits(b) && product(a) == product(b)
}

// acceptable reports whether scales may have dtype have instead of want: clients also store FP32
// scales in the dtype of the model.
func acceptable(have, want safetensors.Dtype) bool {
	return want == safetensors.F32 && (have == safetensors.BF16 || have == safetensors.F16) ||
		want == safetensors.U8 && have == safetensors.F8E8M0
}

// readGlobal reads the global scale of w.
func (m *Model) readGlobal(w *Weight, s *scheme) error {
	t := w.parts[Global]
	if t.Dtype != safetensors.F32 || t.Elements() != 1 {
		return fmt.Errorf("a global scale is one F32 value, not %s %v", t.Dtype, t.Shape)
	}
	var value [1]float32
	if err := readDense(value[:], *t, DenseSpans(1, Tile{To: 1, ToCol: 1})); err != nil {
		return err
	}
	w.stored = value[0]
	w.Global = s.direction.global(w.stored)
	if !(value[0] > 0) || math.IsInf(float64(value[0]), 0) || math.IsInf(float64(w.Global), 0) {
		return fmt.Errorf("a global scale must be positive and finite, not %g", value[0])
	}
	return nil
}
