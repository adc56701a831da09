package convert

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// ggufName is the name of the only file in a plan for llama.cpp, whatever the destination is.
const ggufName = "model" + gguf.Suffix

// fileTypes has the values of general.file_type (enum llama_ftype) by format. Those of q2_k … q5_k are Q2_K_S … Q5_K_S.
var fileTypes = map[string]uint32{quant.BF16.Name: 32, quant.Q8_0.Name: 7, quant.MXFP4.Name: 38, quant.NVFP4.Name: 39,
	"q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q2_k": 21, "q3_k": 11, "q4_k": 14, "q5_k": 16, "q6_k": 18}

// encoderOf returns the encoder of a format that is a type of GGUF files alone.
func encoderOf(f quant.Format) (e ggml.Quant, ok bool) {
	if f.Scaled() || f.Element == nil || f.Block.Cols == 0 {
		return e, false
	}
	e, err := ggml.LookupQuant(strings.ToUpper(f.Name))
	return e, err == nil
}

// fallbacks are the formats of weights whose columns are not whole blocks of K-quants, as llama-quantize chooses them, but for the first
// two, for which it takes IQ4_NL.
var fallbacks = map[string]string{"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": quant.Q8_0.Name}

// fallBack returns the quantizer of a weight that q rejects because of its columns; nil if there is none.
func (p *ggufPlan) fallBack(q *quant.Quantizer, w *checkpoint.Weight, why Reason) *quant.Quantizer {
	if q == nil || why.cause != causeConvention || len(w.Shape) < 2 {
		return nil
	}
	cols := w.Shape[len(w.Shape)-1]
	name, ok := fallbacks[q.Format.Name]
	if !ok || why.Detail != p.convention.RejectsColumns(q.Format, cols) {
		return nil
	}
	f, err := checkpoint.LookupFormat(name)
	if err != nil || p.convention.RejectsColumns(f, cols) != "" {
		return nil
	}
	from := q.Format.Name
	if p.fallen[from] == nil {
		p.fallen[from] = &quant.Quantizer{Format: f}
		if f.Name == quant.Q8_0.Name {
			if other, err := profile.For(f).Quantizer(f); err == nil {
				p.fallen[from] = &other
			}
		}
		p.Notes = append(p.Notes, fmt.Sprintf("weights without whole blocks of %s in a row, the first %s, are in %s", q.Format, w.Name, f))
	}
	return p.fallen[from]
}

// ggufDense has the types of unquantized tensors.
var ggufDense = map[safetensors.Dtype]gguf.Type{safetensors.F32: gguf.F32, safetensors.F16: gguf.F16, safetensors.BF16: gguf.BF16}

// A ggufPlan is an incomplete plan for llama.cpp: one file, in which tensors have other names
// and types, and attention heads another row order.
type ggufPlan struct {
	*Plan
	model    *llamacpp.Model
	raw      bool // the source is a GGUF file whose tensors and metadata the result has
	fileType uint32
	specs    []gguf.Spec
	metadata []gguf.Pair
	stacks   map[string]*stack           // by name of the tensor
	fallen   map[string]*quant.Quantizer // of fallbacks, by the format that does not fit
}

// A stack is a tensor for all experts of a layer.
type stack struct {
	spec  int // index of its spec
	found int // experts so far
	of    int // experts of a layer
}

// ggufType returns the type of a format, which has its name in upper case, and its general.file_type; 0 if there is none.
func ggufType(f quant.Format) (ggml gguf.Type, fileType uint32) {
	fileType, ok := fileTypes[f.Name]
	if !ok {
		return 0, 0
	}
	return ggufTypes()[f.Name], fileType
}

// ggufTypes returns the types of tensors by format: those of fileTypes have one.
var ggufTypes = sync.OnceValue(func() map[string]gguf.Type {
	types := map[string]gguf.Type{}
	for t := range gguf.Type(math.MaxUint8) {
		types[strings.ToLower(t.String())] = t
	}
	for name := range fileTypes {
		if _, ok := types[name]; !ok {
			panic("no type of GGUF files for format " + name)
		}
	}
	return types
})

// newGGUFPlan returns an empty plan. The type of the file is that of q, because there is none for most mixtures. model is the content of
// the file; nil: it follows from the source.
func newGGUFPlan(source *checkpoint.Model, c *checkpoint.Convention, model *llamacpp.Model, q quant.Quantizer,
	calibration *Calibration) (*ggufPlan, error) {
	if calibration != nil {
		return nil, fmt.Errorf("convention %s stores no scales of activations: leave the calibration out", c)
	}
	p := &ggufPlan{Plan: newPlan(source, c, q), stacks: map[string]*stack{}, fallen: map[string]*quant.Quantizer{}}
	p.single = true
	_, p.fileType = ggufType(q.Format)
	if p.model, p.raw = model, model != nil; !p.raw {
		var err error
		if p.model, err = llamacpp.Describe(source.Source); err != nil {
			return nil, err
		}
	}
	p.Notes = append(p.Notes, p.model.Notes...)
	return p, nil
}

// rawGGUF returns the model of a GGUF file with the names and types of the file, of any architecture, and the content of the file.
// It is closed with m.
func rawGGUF(m *checkpoint.Model) (*checkpoint.Model, *llamacpp.Model, error) {
	source, content, err := llamacpp.OpenRaw(m.Source.GGUF)
	if err != nil {
		return nil, nil, err
	}
	m.Source.OnClose(source.Close)
	return checkpoint.Read(source), content, nil
}

// furtherNames returns selection.further for a GGUF file: names of the checkpoint and of the tensors of all experts.
func furtherNames(m *checkpoint.Model, content *llamacpp.Model) map[string][]string {
	further := map[string][]string{}
	for _, w := range m.Weights {
		if at, err := content.Place(w.Name, w.Shape); err == nil {
			further[w.Name] = slices.DeleteFunc(slices.Clone(at.Names[:]), func(name string) bool { return name == "" })
		}
	}
	return further
}

// planGGUF plans the quantization of a checkpoint for llama.cpp. same is the content of the source if that is a GGUF file whose
// tensors and metadata the result has.
func planGGUF(source *checkpoint.Model, c *checkpoint.Convention, s selection, o QuantizeOptions, same *llamacpp.Model) (*Plan, error) {
	if o.Requantize && same == nil {
		return nil, fmt.Errorf("convention %s requantizes GGUF files only: start from an unquantized checkpoint, from one decoded by "+
			"dequantize, or convert one of the same format", c)
	}
	path, scaled := source.Source.Path, false
	p, err := newGGUFPlan(source, c, same, s.main(), o.Calibration)
	if err != nil {
		return nil, err
	}
	for _, q := range s.treatments {
		if why := p.model.Rejects(q.Format); why != "" && !q.Arithmetic.FixesGlobal() {
			return nil, fmt.Errorf("%s: %s", path, why)
		}
		scaled = scaled || coded(q.Format)
	}
	fell := map[*quant.Quantizer]bool{} // some of its weights are in another format
	if why := p.dropsCache(); why != "" {
		p.Notes = append(p.Notes, why)
	}
	for _, whole := range source.Weights {
		if p.hasCache(whole) {
			continue
		}
		for _, w := range source.Stacked(whole) {
			d, names := decision{Weight: w}, append(s.names(w), whole.Name)
			d.quantizer, d.reason = s.chosen(names...)
			if chosen := d.quantizer; chosen == nil || coded(chosen.Format) || same != nil {
				d.quantizer, d.reason = s.decide(w, p.convention, names...)
				if q := p.fallBack(chosen, w, d.reason); q != nil {
					d.quantizer, d.reason, fell[chosen] = q, Reason{}, true
				}
				if d.reason.cause == noCause && coded(d.quantizer.Format) {
					d.action, d.stored = Quantize, p.stored(d.quantizer.Format, w)
				}
			}
			if w.Quantized() && d.quantizer == nil { // in a GGUF file
				d.action = Relabel
				d.stored, d.metadata[0], d.metadata[1] = d.Relabeled(p.convention, nil)
			}
			if err := p.place(d); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if scaled {
		if err := p.quantizesAny(); err != nil {
			return nil, err
		}
		p.noteLeft(s.include)
	}
	if err := p.admitRules(s, fell); err != nil {
		return nil, err
	}
	p.settleScheme()
	if o.FileType != 0 {
		p.fileType, p.mixture = o.FileType, o.FileType
	}
	if o.Statistics != nil {
		p.metadata = append(p.metadata, o.Statistics.Record()...)
	}
	if err := p.useStatistics(o); err != nil {
		return nil, err
	}
	return p.Plan, p.layOut()
}

// settleScheme names the file after its only block format, if there is one.
func (p *ggufPlan) settleScheme() {
	if p.settleFormat() {
		_, p.fileType = ggufType(p.Format)
	} else {
		p.Scheme = "" // of one format
	}
}

// coded reports whether a weight in a format has codes.
func coded(f quant.Format) bool {
	_, ok := encoderOf(f)
	return ok || f.Scaled()
}

// stored returns the tensors of a weight in a format with codes.
func (p *ggufPlan) stored(f quant.Format, w *checkpoint.Weight) []checkpoint.Stored {
	e, ok := encoderOf(f)
	if !ok {
		return p.convention.Stored(f, w.Name, w.Shape)
	}
	rows, cols := w.Matrix()
	return []checkpoint.Stored{{Part: checkpoint.Blocks, Spec: safetensors.Spec{Name: w.Name, Dtype: safetensors.U8,
		Shape: []int64{int64(rows), int64(cols / e.Elements * e.Bytes)}}}}
}

// relabelGGUF plans the conversion of a quantized checkpoint for llama.cpp, whose first format is f: without changing
// codes and block scales, or with casts to f.
func relabelGGUF(source *checkpoint.Model, c *checkpoint.Convention, f quant.Format, calibration *Calibration, casting *CastOptions) (*Plan,
	error) {
	p, err := newGGUFPlan(source, c, nil, quant.Quantizer{Format: f}, calibration)
	if err != nil {
		return nil, err
	}
	p.casting = casting
	for _, whole := range source.Weights {
		for _, w := range source.Stacked(whole) {
			if err := p.relabel(w); err != nil {
				return nil, err
			}
		}
	}
	p.settleScheme()
	return p.Plan, p.layOut()
}

// relabel decides how a weight of a quantized checkpoint is stored.
func (p *ggufPlan) relabel(w *checkpoint.Weight) error {
	d := decision{Weight: w}
	if w.Quantized() {
		if d.cast = p.castOf(w); d.cast != nil {
			d.cast.unscaled = p.model.Rejects(d.cast.To) != ""
		} else if why := p.model.Rejects(w.Format); why != "" && w.Global != 1 {
			return fmt.Errorf("%s: its global scale is %g: %s", w.Name, w.Global, why)
		}
		if err := p.relabelWeight(&d, nil, nil); err != nil {
			return err
		}
	}
	if err := p.place(d); err != nil {
		return fmt.Errorf("%s: %w", p.source.Source.Path, err)
	}
	return nil
}

// place decides which tensor of the file holds a weight.
func (p *ggufPlan) place(d decision) error {
	w := d.Weight
	at, err := p.model.Place(w.Name, w.Shape)
	if err != nil || at.Name == "" {
		return err
	}
	d.origin = at.Names[0]
	d.file = ggufName
	ggml, _ := ggufType(p.formatOf(d))
	if len(d.stored) == 0 {
		if ggml, err = p.dense(&d, at); err != nil {
			return err
		}
	}
	if err := p.addSpec(at, gguf.Spec{Name: at.Name, Type: ggml, Shape: at.Stacked(at.Shape(w.Shape))}); err != nil {
		return fmt.Errorf("tensor %s: %w", w.Name, err)
	}
	d.stored[0].Name, d.expert, d.experts = at.Name, at.Expert, at.Experts
	if at.Unscaled {
		d.stored = d.stored[:1] // the scale is 1, or Rejects names the model
	}
	for i := range d.stored[1:] {
		d.stored[1+i].Name = llamacpp.ScaleName(at.Name)
		if err := p.addSpec(at, gguf.Spec{Name: d.stored[1+i].Name, Type: gguf.F32, Shape: at.StackedScales()}); err != nil {
			return fmt.Errorf("tensor %s: %w", w.Name, err)
		}
	}
	if at.HeadDim > 0 {
		rows := w.Shape[0]
		d.row, d.rowBytes = at.Row, specBytes(d.stored[0].Spec)/max(1, rows)
	}
	if d.metadata[0] != "" {
		p.metadata = append(p.metadata, gguf.Pair{Key: d.metadata[0], Value: d.metadata[1]})
	}
	p.decisions = append(p.decisions, d)
	return nil
}

// addSpec adds a tensor to the file. A tensor of all experts is added with the first of them.
func (p *ggufPlan) addSpec(at llamacpp.Place, spec gguf.Spec) error {
	s, ok := p.stacks[spec.Name]
	switch {
	case !ok:
		s = &stack{spec: len(p.specs), of: at.Experts}
		p.specs = append(p.specs, spec)
		if at.Experts > 0 {
			p.stacks[spec.Name] = s
		}
	case p.specs[s.spec].Type != spec.Type || !slices.Equal(p.specs[s.spec].Shape, spec.Shape):
		return fmt.Errorf("it is %s %v, but another expert in the same tensor of llama.cpp is %s %v: quantize all experts of a layer to one "+
			"format, or none",
			spec.Type, spec.Shape, p.specs[s.spec].Type, p.specs[s.spec].Shape)
	}
	s.found++
	return nil
}

// dense plans an unquantized weight: vectors and routers become F32, which llama.cpp needs.
// Others keep their dtype, unless their format is BF16. Those of a GGUF file keep their type.
func (p *ggufPlan) dense(d *decision, at llamacpp.Place) (gguf.Type, error) {
	w := d.Weight
	dtype := w.Dtype
	if p.raw && d.quantizer == nil {
		rows, cols := w.Matrix()
		bytes := safetensors.Spec{Name: w.Name, Dtype: dtype, Shape: w.Shape}
		if _, dense := ggufDense[dtype]; !dense || w.Decoded() {
			bytes.Dtype, bytes.Shape = safetensors.U8, []int64{w.FlatBytes(rows * cols)}
		}
		d.stored = []checkpoint.Stored{{Part: checkpoint.Codes, Spec: bytes}}
		return at.Type, nil
	}
	switch {
	case len(w.Shape) < 2, at.F32, at.Add != 0:
		dtype = safetensors.F32
	case d.quantizer != nil && d.quantizer.Format.Name == quant.BF16.Name:
		dtype = safetensors.BF16
	}
	ggml, ok := ggufDense[dtype]
	if !w.Dense() || !ok {
		return 0, fmt.Errorf("tensor %s: %s elements are not supported in GGUF, only F32, F16 and BF16", w.Name, w.Dtype)
	}
	d.stored = []checkpoint.Stored{{Part: checkpoint.Codes, Spec: safetensors.Spec{Dtype: dtype, Shape: w.Shape}}}
	if dtype != w.Dtype || at.Add != 0 || w.Rearranged() || w.Quantized() {
		d.action, d.add = Decode, at.Add
	}
	return ggml, nil
}

// layOut lays out the file.
func (p *ggufPlan) layOut() error {
	for _, s := range p.stacks {
		if s.found != s.of {
			return fmt.Errorf("%s: %s holds %d experts, but the checkpoint has %d: fetch it again", p.source.Source.Path, p.specs[s.spec].Name, s.of,
				s.found)
		}
	}
	constants := make([]gguf.Spec, len(p.model.Extra))
	for i, c := range p.model.Extra {
		constants[i] = c.Spec
	}
	metadata := append(append([]gguf.Pair{}, p.model.Metadata...), gguf.Pair{Key: "general.file_type", Value: p.fileType})
	if len(p.decisions) == 0 {
		return fmt.Errorf("%s: no tensors: name a checkpoint with weights", p.source.Source.Path)
	}
	specs := append(constants, p.specs...)
	placeholder := p.placeholder(len(specs), func(decision) bool { return true })
	choices := p.choices()
	for _, key := range slices.Sorted(maps.Keys(choices)) {
		metadata = append(metadata, gguf.Pair{Key: key, Value: choices[key]})
	}
	metadata = append(append(metadata, p.metadata...), gguf.Pair{Key: checksum.RecordKey, Value: placeholder})
	l, err := gguf.NewLayout(specs, metadata)
	if err != nil {
		return fmt.Errorf("%s: lay out the converted file: %w", p.source.Source.Path, err)
	}
	contents, err := llamacpp.FileLayout(l)
	if err == nil {
		err = contents.Reserve(placeholder)
	}
	if err != nil {
		return err
	}
	p.files, p.whole = []file{{ggufName, contents}}, &ggufWhole{l, metadata[:len(metadata)-1]}
	first := slices.IndexFunc(p.decisions, func(d decision) bool { return d.stored[0].Name == p.specs[0].Name && d.expert == 0 })
	for _, c := range p.model.Extra { // written with the first weight
		value, err := binary.Append(nil, binary.LittleEndian, c.Values)
		if err != nil {
			return err
		}
		d := &p.decisions[first]
		d.stored = append(d.stored, checkpoint.Stored{Part: checkpoint.Global, Value: value,
			Spec: safetensors.Spec{Name: c.Name, Dtype: safetensors.F32, Shape: c.Shape}})
	}
	return nil
}
