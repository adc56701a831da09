package convert

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// GGUFSuffix ends the names of GGUF files.
const GGUFSuffix = ".gguf"

// ggufName is the name of the one file of a plan for llama.cpp, whatever DST is.
const ggufName = "model" + GGUFSuffix

// ggufFormats has the types and the numbers of general.file_type (enum llama_ftype)
// by block format.
var ggufFormats = []struct {
	format   quant.Format
	ggml     gguf.Type
	fileType uint32
}{
	{quant.BF16, gguf.BF16, 32},
	{quant.Q8_0, gguf.Q8_0, 7},
	{quant.MXFP4, gguf.MXFP4, 38},
	{quant.NVFP4, gguf.NVFP4, 39},
}

// ggufDense has the types of tensors that are not quantized.
var ggufDense = map[safetensors.Dtype]gguf.Type{safetensors.F32: gguf.F32, safetensors.F16: gguf.F16, safetensors.BF16: gguf.BF16}

// A ggufPlan is a plan for llama.cpp on its way: one file, in which tensors have
// other names and types, and heads their rows in another order.
type ggufPlan struct {
	*Plan
	model    *llamacpp.Model
	ggml     gguf.Type
	fileType uint32
	specs    []gguf.Spec
	metadata []gguf.Pair
	stacks   map[string]*stack // by name of the tensor
}

// A stack is a tensor of all experts of a layer that is being planned.
type stack struct {
	spec  int // among the specs
	found int // experts
	of    int
}

func newGGUFPlan(source *checkpoint.Model, q quant.Quantizer) (*ggufPlan, error) {
	f := q.Format
	p := &ggufPlan{Plan: &Plan{Source: source, Convention: checkpoint.GGUF(), Format: f, Quantizer: q, Ignore: []string{}, single: true}, stacks: map[string]*stack{}}
	for _, row := range ggufFormats {
		if row.format.Name == f.Name {
			p.ggml, p.fileType = row.ggml, row.fileType
			var err error
			if p.model, err = llamacpp.Describe(source.Source); err != nil {
				return nil, err
			}
			p.Notes = p.model.Notes
			return p, nil
		}
	}
	return nil, fmt.Errorf("convention %s has no layout for %s: it holds bf16, %s", p.Convention, f, formatNames(p.Convention.Formats()))
}

var errNoActivations = errors.New("convention gguf stores no scales of activations: leave --calibration out")

// planGGUF plans the quantization of a checkpoint for llama.cpp.
func planGGUF(source *checkpoint.Model, o QuantizeOptions) (*Plan, error) {
	f := o.Quantizer.Format
	if err := o.Quantizer.Validate(); err != nil {
		return nil, err
	}
	if o.Requantize {
		return nil, errors.New("convention gguf takes what is not quantized, or of the same format (convert): leave --requantize out")
	}
	if err := refuseForeign(source); err != nil {
		return nil, err
	}
	if err := refuseQuantized(source); err != nil {
		return nil, err
	}
	if o.Calibration != nil {
		return nil, errNoActivations
	}
	if err := o.Selection.matched(source); err != nil {
		return nil, err
	}
	p, err := newGGUFPlan(source, o.Quantizer)
	if err != nil {
		return nil, err
	}
	if why := p.model.Refuses(f); why != "" && o.Quantizer.Arithmetic != quant.BlockOnly {
		return nil, fmt.Errorf("%s: %s", source.Source.Path, why)
	}
	o.Selection.layers = source.Source.Integer("num_hidden_layers")
	for _, w := range source.Weights {
		d := Decision{Weight: w}
		if f.Scaled() {
			if d.Reason = o.Selection.reason(w, f, p.Convention); d.Reason == "" {
				d.Action, d.Stored = Quantize, p.Convention.Stored(f, w.Name, w.Shape)
			}
		}
		if err := p.place(d); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Source.Path, err)
		}
	}
	if f.Scaled() && p.Count(Quantize) == 0 {
		return nil, fmt.Errorf("%s: no weight would be quantized: %s", source.Source.Path, p.reasons())
	}
	return p.Plan, p.layOut()
}

// relabelGGUF plans the conversion of a quantized checkpoint for llama.cpp, without
// a change to any code or scale of a block.
func relabelGGUF(source *checkpoint.Model, f quant.Format, o RelabelOptions) (*Plan, error) {
	if o.Calibration != nil {
		return nil, errNoActivations
	}
	p, err := newGGUFPlan(source, quant.Quantizer{Format: f})
	if err != nil {
		return nil, err
	}
	for _, w := range source.Weights {
		d := Decision{Weight: w}
		if w.Quantized() {
			if why := p.model.Refuses(w.Format); why != "" && w.Global != 1 {
				return nil, fmt.Errorf("%s: its global scale is %g: %s", w.Name, w.Global, why)
			}
			if err := p.relabelWeight(&d, nil, nil); err != nil {
				return nil, err
			}
		}
		if err := p.place(d); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Source.Path, err)
		}
	}
	return p.Plan, p.layOut()
}

// place gives a weight its place in the file.
func (p *ggufPlan) place(d Decision) error {
	w := d.Weight
	at, err := p.model.Place(w.Name, w.Shape)
	if err != nil || at.Name == "" {
		return err
	}
	d.File = ggufName
	ggml := p.ggml
	if len(d.Stored) == 0 {
		if ggml, err = p.dense(&d, at); err != nil {
			return err
		}
	}
	if err := p.addSpec(at, gguf.Spec{Name: at.Name, Type: ggml, Shape: at.Stacked(at.Shape(w.Shape))}); err != nil {
		return fmt.Errorf("tensor %s: %w", w.Name, err)
	}
	d.Stored[0].Name, d.expert = at.Name, at.Expert
	for i := range d.Stored[1:] {
		d.Stored[1+i].Name = llamacpp.ScaleName(at.Name)
		if err := p.addSpec(at, gguf.Spec{Name: d.Stored[1+i].Name, Type: gguf.F32, Shape: at.StackedScales()}); err != nil {
			return fmt.Errorf("tensor %s: %w", w.Name, err)
		}
	}
	if at.HeadDim > 0 {
		rows := w.Shape[0]
		d.row, d.rowBytes = at.Row, specBytes(d.Stored[0].Spec)/max(1, rows)
	}
	if d.metadata[0] != "" {
		p.metadata = append(p.metadata, gguf.Pair{Key: d.metadata[0], Value: d.metadata[1]})
	}
	p.Decisions = append(p.Decisions, d)
	return nil
}

// addSpec adds a tensor to the file, that of all experts with the first of them.
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
		return fmt.Errorf("it is %s %v, and another expert in the same tensor of llama.cpp is %s %v: quantize all experts of a layer or none",
			spec.Type, spec.Shape, p.specs[s.spec].Type, p.specs[s.spec].Shape)
	}
	s.found++
	return nil
}

// dense stores a weight that is not quantized: vectors and routers as F32, as
// llama.cpp wants them, and others as they are, or as BF16 where that is the format.
func (p *ggufPlan) dense(d *Decision, at llamacpp.Place) (gguf.Type, error) {
	w := d.Weight
	dtype := w.Dtype
	switch {
	case len(w.Shape) < 2, at.F32:
		dtype = safetensors.F32
	case p.Format.Name == quant.BF16.Name:
		dtype = safetensors.BF16
	}
	ggml, ok := ggufDense[dtype]
	if !w.Dense() || !ok {
		return 0, fmt.Errorf("tensor %s: %s elements are not written as GGUF, only F32, F16 and BF16", w.Name, w.Dtype)
	}
	d.Stored = []checkpoint.Stored{{Part: checkpoint.Codes, Spec: safetensors.Spec{Dtype: dtype, Shape: w.Shape}}}
	if dtype != w.Dtype {
		d.Action = Decode
	}
	return ggml, nil
}

// layOut plans the file.
func (p *ggufPlan) layOut() error {
	for _, s := range p.stacks {
		if s.found != s.of {
			return fmt.Errorf("%s: %s is of %d experts, and the checkpoint has %d: fetch it again", p.Source.Source.Path, p.specs[s.spec].Name, s.of, s.found)
		}
	}
	constants := make([]gguf.Spec, len(p.model.Extra))
	for i, c := range p.model.Extra {
		constants[i] = c.Spec
	}
	metadata := append(append([]gguf.Pair{}, p.model.Metadata...), gguf.Pair{Key: "general.file_type", Value: p.fileType})
	if len(p.Decisions) == 0 {
		return fmt.Errorf("%s: it holds no tensors: name a checkpoint with weights", p.Source.Source.Path)
	}
	specs := append(constants, p.specs...)
	placeholder := p.placeholder(len(specs), func(Decision) bool { return true })
	metadata = append(append(metadata, p.metadata...), gguf.Pair{Key: checksum.RecordKey, Value: placeholder})
	l, err := gguf.NewLayout(specs, metadata)
	if err != nil {
		return fmt.Errorf("%s: the converted file cannot be laid out: %w", p.Source.Source.Path, err)
	}
	file, err := l.File()
	if err == nil {
		err = file.Reserve(placeholder)
	}
	if err != nil {
		return err
	}
	p.Files = []File{{ggufName, file}}
	i := slices.IndexFunc(p.Decisions, func(d Decision) bool { return d.expert == 0 }) // with which the constants are written
	first := &p.Decisions[i]
	for _, c := range p.model.Extra {
		value, err := binary.Append(nil, binary.LittleEndian, c.Values)
		if err != nil {
			return err
		}
		first.Stored = append(first.Stored, checkpoint.Stored{Part: checkpoint.Global, Value: value,
			Spec: safetensors.Spec{Name: c.Name, Dtype: safetensors.F32, Shape: c.Shape}})
	}
	return nil
}
