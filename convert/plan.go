// Package convert turns one checkpoint into another: it quantizes and
// dequantizes, tile by tile, in the memory of a few tiles.
//
//	plan   headers only: what becomes of every weight, the name, dtype, shape and offset of every
//	       tensor of the result, the configuration and the ignore list
//	sweep  where a format needs it, the amax of every weight, shared by fused siblings
//	tiles  read rows, convert, write at the planned offset; any order, any number of threads
//	commit the result appears under its name only when it is whole
package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// Action is what becomes of a weight.
type Action uint8

const (
	Copy     Action = iota // its bytes as they are
	Quantize               // codes and scales
	Decode                 // values of a floating-point dtype
	Relabel                // codes and scales as they are, in another convention
)

// A Decision is one weight of the plan.
type Decision struct {
	Weight *checkpoint.Weight
	Action Action
	Reason string // why a weight is not quantized
	File   string // of the result
	Stored []checkpoint.Stored

	metadata [2]string // a key and a value for the metadata of the file; no key: none

	// Where the result has the rows of the weight in another order: the bytes of a
	// row there, and where a row goes.
	rowBytes int64
	row      func(int) int

	expert int // which of the equal parts of its tensors the weight is, where these hold several experts
}

// Extent returns where the weight's part of one of its stored tensors begins, in bytes
// from the tensor's beginning, and how many bytes it has there: all, unless the tensor
// holds several experts.
func (d Decision) Extent(s checkpoint.Stored) (begin, n int64) {
	n = specBytes(s.Spec)
	return int64(d.expert) * n, n
}

// Bytes returns the bytes that the weight takes in the result.
func (d Decision) Bytes() (n int64) {
	for _, s := range d.Stored {
		n += specBytes(s.Spec)
	}
	return n
}

// A File is one safetensors file of the result.
type File struct {
	Name   string
	Layout *safetensors.Layout
}

// A Plan is a conversion that has not begun: everything but the data.
type Plan struct {
	Source     *checkpoint.Model
	Convention *checkpoint.Convention // of the result; nil where it is not quantized
	Format     quant.Format
	Quantizer  quant.Quantizer
	Decisions  []Decision // in the order of the source
	Files      []File
	Ignore     []string // modules that the configuration says are not quantized
	Notes      []string // what the user should know of the result
	KVCache    bool     // scales of an FP8 KV cache are stored

	single bool              // the result is a file and no directory
	config []byte            // config.json of the result; nil where there is none
	index  []byte            // the index; nil where there is none
	small  []checkpoint.File // other files that the plan makes

	worker  worker
	workers map[string]int // by file of the result: who writes it
}

// QuantizeOptions say how a checkpoint is to be quantized.
type QuantizeOptions struct {
	Quantizer  quant.Quantizer
	Convention *checkpoint.Convention // nil: the client's that holds the format; plain where there is no config.json
	Scheme     string                 // of the convention; "": its first of the format that the calibration serves
	Selection  Selection

	Calibration *Calibration // scales of activations; nil: none are stored
	Requantize  bool         // quantize what clients decode of a source that is quantized already
}

// PlanQuantize plans the quantization of a checkpoint. It fails where the
// checkpoint is quantized already, where the convention has no layout for the
// format, where a pattern matches nothing, and where no weight would be quantized.
func PlanQuantize(source *checkpoint.Model, o QuantizeOptions) (*Plan, error) {
	f := o.Quantizer.Format
	if o.Convention.Is(checkpoint.GGUF()) {
		return planGGUF(source, o)
	}
	if !f.Scaled() {
		return nil, fmt.Errorf("%s has no scales: choose a block-scaled format, or dequantize --dtype to change the dtype of a checkpoint", f)
	}
	if err := o.Quantizer.Validate(); err != nil {
		return nil, err
	}
	if err := refuseForeign(source); err != nil {
		return nil, err
	}
	refuse := refuseQuantized
	if o.Requantize && source.Convention != nil {
		refuse = sound
	}
	if err := refuse(source); err != nil {
		return nil, err
	}
	c := o.Convention
	if c == nil {
		c = source.DefaultConvention(f)
	}
	c, err := chooseScheme(source, c, f, o.Scheme, o.Calibration)
	if err != nil {
		return nil, err
	}
	q, note, err := c.Quantizer(o.Quantizer)
	if err != nil {
		return nil, err
	}
	if err := o.Selection.matched(source); err != nil {
		return nil, err
	}
	o.Selection.layers = source.Source.Integer("num_hidden_layers")
	p := &Plan{Source: source, Convention: c, Format: f, Quantizer: q, Ignore: []string{}, single: source.Source.Single}
	if note != "" {
		p.Notes = []string{note}
	}
	for _, w := range source.Weights {
		if source.Convention != nil && isCacheScale(w) {
			continue // of the activations of another quantization
		}
		for _, part := range p.parts(w, o.Selection) {
			d := Decision{Weight: part, Reason: o.Selection.reason(part, f, c)}
			switch {
			case d.Reason == "":
				d.Action, d.Stored = Quantize, c.Stored(f, part.Name, part.Shape)
			case part.IsView(), part.Quantized(): // its values are not in one place as they are
				d.Action, d.Stored = Decode, []checkpoint.Stored{{Spec: part.DenseSpec(part.Dtype)}}
			}
			p.add(d)
		}
	}
	if p.Count(Quantize) == 0 {
		if len(p.Decisions) == 0 {
			return nil, fmt.Errorf("%s: it holds no tensors: name a checkpoint with weights", source.Source.Path)
		}
		return nil, fmt.Errorf("%s: no weight would be quantized: %s; --include REGEXP quantizes weights that stay by default", source.Source.Path, p.reasons())
	}
	p.noteExperts()
	if err := p.refuseLarger(o); err != nil {
		return nil, err
	}
	if err := p.calibrate(o.Calibration); err != nil {
		return nil, err
	}
	return p, p.complete(checkpoint.Settings{KVCache: p.KVCache, PowerOfTwo: o.Quantizer.PowerOfTwo})
}

// parts returns the weights that a weight is planned as: its experts, where it
// holds all of a layer, and the convention stores each by itself.
func (p *Plan) parts(w *checkpoint.Weight, s Selection) []*checkpoint.Weight {
	whole := []*checkpoint.Weight{w}
	if s.reason(w, p.Format, p.Convention) == "" || !p.Convention.LinearOnly() || matches(s.Exclude, w.Name) {
		return whole
	}
	split := w.Split()
	if !slices.ContainsFunc(split, func(e *checkpoint.Weight) bool { return s.reason(e, p.Format, p.Convention) == "" }) {
		return whole
	}
	return split
}

// noteExperts says that fused experts stay, which are most of a model that has them.
func (p *Plan) noteExperts() {
	tensors, bytes, all, first := 0, int64(0), int64(0), (*Decision)(nil)
	for i, d := range p.Decisions {
		all += d.Weight.StoredBytes()
		if d.Weight.ExpertModules() != nil && d.Reason != "" && d.Reason != excluded {
			tensors++
			bytes += d.Weight.StoredBytes()
			if first == nil {
				first = &p.Decisions[i]
			}
		}
	}
	if first == nil {
		return
	}
	advice := "store each expert in tensors of its own to quantize them"
	if first.Weight.ExpertsBiased() {
		advice = "--convention gpt-oss holds them in mxfp4, plain in every format"
	}
	p.Notes = append(p.Notes, fmt.Sprintf("%d of %d weights, with %d of %d bytes, are not quantized: %s; %s", tensors, len(p.Decisions), bytes, all, first.Reason, advice))
}

// search returns how the scales of the result were searched: by the plan, or before
// it was relabeled. "" where they were not.
func (p *Plan) search() string {
	switch {
	case p.Quantizer.Search != quant.NoSearch:
		return p.Quantizer.Search.String()
	case p.Count(Relabel) > 0:
		return p.Source.ScaleSearch()
	}
	return ""
}

// complete lays the files out and makes the configuration.
func (p *Plan) complete(o checkpoint.Settings) error {
	slices.Sort(p.Ignore)
	o.Ignore = p.Ignore
	p.noteLimits()
	metadata := map[string]string{} // of every file
	if search := p.search(); search != "" {
		metadata[checkpoint.ScaleSearchKey] = search
	}
	if p.Source.Source.Config == nil {
		if key, value, ok := p.Convention.FileMetadata(p.Format, o); ok {
			metadata[key] = value
		}
	} else {
		p.small = p.Convention.Files(p.Format, o)
	}
	if err := p.layout(metadata); err != nil {
		return err
	}
	return p.configure(func(config []byte) ([]byte, error) { return p.Convention.Configure(config, p.Format, o) })
}

// chooseScheme returns the convention with the one scheme by which f is stored. It
// fails where the checkpoint cannot be stored so.
func chooseScheme(source *checkpoint.Model, c *checkpoint.Convention, f quant.Format, name string, calibration *Calibration) (*checkpoint.Convention, error) {
	plain := checkpoint.Plain()
	if !c.Is(plain) && !source.Source.Single && source.Source.Config == nil {
		return nil, fmt.Errorf("%s: there is no %s, in which convention %s says how weights are quantized: fetch it, or choose --convention %s", source.Source.Path, hf.ConfigName, c, plain)
	}
	if !c.Holds(f) {
		return nil, fmt.Errorf("convention %s has no layout for %s: it holds %s; or choose --convention %s", c, f, formatNames(c.Formats()), plain)
	}
	if name != "" {
		var err error
		if c, err = c.With(f, name); err != nil {
			return nil, err
		}
	} else if calibration != nil && calibration.inputs() {
		only, ok := c.WithActivations(f, checkpoint.Static)
		if !ok {
			return nil, fmt.Errorf("convention %s stores no scales of activations for %s: leave --calibration out", c, f)
		}
		c = only
	}
	scheme, activations := c.Scheme(f)
	if activations != checkpoint.Static {
		if name != "" && calibration != nil && calibration.inputs() {
			return nil, fmt.Errorf("scheme %s of convention %s stores no scales of activations: leave --calibration out, or choose another --scheme", scheme, c)
		}
		return c, nil
	}
	if calibration == nil || !calibration.inputs() {
		return nil, fmt.Errorf("scheme %s of convention %s stores scales of activations: give them with --calibration FILE, or --calibration %s for the constant of NVIDIA's data-free recipe%s", scheme, c, ConstantCalibration, otherSchemes(c, f, scheme))
	}
	return c, nil
}

// otherSchemes names, as the end of a message, the schemes that need no calibration.
func otherSchemes(c *checkpoint.Convention, f quant.Format, scheme string) string {
	full, err := checkpoint.LookupConvention(c.Name)
	if err != nil {
		return ""
	}
	names := slices.DeleteFunc(full.Schemes(f), func(name string) bool { return name == scheme })
	if len(names) == 0 {
		return ""
	}
	return "; or choose --scheme " + strings.Join(names, " or ")
}

// PlanDequantize plans the decoding of a quantized checkpoint to a
// floating-point dtype: F32, BF16 or F16, which config.json then names. Scales of
// activations go with the codes. It fails where the checkpoint is not quantized,
// or its structure is not sound.
func PlanDequantize(source *checkpoint.Model, dtype safetensors.Dtype) (*Plan, error) {
	if err := sound(source); err != nil {
		return nil, err
	}
	p := &Plan{Source: source, single: source.Source.Single}
	for _, w := range source.Weights {
		d := Decision{Weight: w}
		if w.Quantized() {
			d.Action = Decode
			d.Stored = []checkpoint.Stored{{Spec: w.DenseSpec(dtype)}}
		} else if isCacheScale(w) {
			continue
		}
		p.add(d)
	}
	if err := p.layout(nil); err != nil {
		return nil, err
	}
	return p, p.configure(func(config []byte) ([]byte, error) {
		config, err := checkpoint.Unconfigure(config)
		if err != nil {
			return nil, err
		}
		return configjson.WithTorchDtype(config, checkpoint.TorchDtype(dtype))
	})
}

// Count returns the number of weights that the run takes an action on.
func (p *Plan) Count(a Action) (n int) {
	for i, d := range p.Decisions {
		if d.Action == a && p.mine(i) {
			n++
		}
	}
	return n
}

// SourceBytes returns the bytes of the source's tensors that the run converts,
// and how many it reads: a sweep for amax comes before.
func (p *Plan) SourceBytes() (stored, read int64) {
	for i, d := range p.Decisions {
		if p.mine(i) {
			stored += d.Weight.StoredBytes()
		}
	}
	read = stored
	for _, members := range p.groups() {
		for _, i := range members {
			read += p.Decisions[i].Weight.StoredBytes()
		}
	}
	return stored, read
}

// Bytes returns the bytes of the files of weights that the run writes.
func (p *Plan) Bytes() (n int64) {
	for _, f := range p.Files {
		if p.writes(f.Name) {
			n += f.Layout.FileSize()
		}
	}
	return n
}

// add completes a decision and files it.
func (p *Plan) add(d Decision) {
	first, _ := d.Weight.Part(checkpoint.Codes)
	d.File = first.Shard.Name
	if d.Action == Copy {
		d.Stored = append([]checkpoint.Stored{{Spec: safetensors.Spec{Name: d.Weight.Name, Dtype: d.Weight.Dtype, Shape: first.Shape}}}, d.Stored...)
	}
	if d.Action == Copy || d.Action == Decode {
		if module, ok := strings.CutSuffix(d.Weight.Name, ".weight"); ok && len(d.Weight.Shape) == 2 {
			p.Ignore = append(p.Ignore, module)
		}
		p.Ignore = append(p.Ignore, d.Weight.ExpertModules()...)
	}
	p.Decisions = append(p.Decisions, d)
}

// layout plans the files: one for each of the source, with the same name, its
// metadata and what is added to it.
func (p *Plan) layout(added map[string]string) error {
	index := safetensors.Index{WeightMap: map[string]string{}}
	for _, shard := range p.Source.Source.Shards() {
		var specs []safetensors.Spec
		metadata := map[string]string{}
		for key, value := range shard.File.Metadata() {
			if !checkpoint.IsOwnMetadata(key) && key != checksum.RecordKey {
				metadata[key] = value
			}
		}
		metadata["format"] = p.Convention.FileFormat()
		maps.Copy(metadata, added)
		for _, d := range p.Decisions {
			if d.File != shard.Name {
				continue
			}
			for _, s := range d.Stored {
				specs = append(specs, s.Spec)
				index.WeightMap[s.Name] = shard.Name
				index.TotalSize += specBytes(s.Spec)
			}
			if d.metadata[0] != "" {
				metadata[d.metadata[0]] = d.metadata[1]
			}
			if d.Action == Quantize || d.Action == Relabel {
				if key, value, ok := p.Convention.Metadata(p.Format, d.Weight.Name, d.Weight.Shape, d.Weight.Dtype); ok {
					metadata[key] = value
				}
			}
		}
		placeholder := p.placeholder(len(specs), func(d Decision) bool { return d.File == shard.Name })
		metadata[checksum.RecordKey] = placeholder
		layout, err := safetensors.NewLayout(specs, metadata)
		if err == nil {
			err = layout.Reserve(placeholder)
		}
		if err != nil {
			return fmt.Errorf("%s: the converted file cannot be laid out: %w", shard.File.Name(), err)
		}
		p.Files = append(p.Files, File{shard.Name, layout})
	}
	if p.single || len(p.Files) == 1 && p.Files[0].Name == safetensors.ShardName(1, 1) {
		return nil
	}
	var err error
	p.index, err = index.Marshal()
	return err
}

// configure sets config.json to what edit makes of the source's. Without one
// there is nothing to say it in.
func (p *Plan) configure(edit func(config []byte) ([]byte, error)) error {
	if p.Source.Source.Config == nil {
		return nil
	}
	config, err := edit(p.Source.Source.Config)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Source.Source.Path, err)
	}
	p.config = config
	return nil
}

// reasons lists why weights are not quantized, most frequent first.
func (p *Plan) reasons() string {
	count := map[string]int{}
	for _, d := range p.Decisions {
		count[d.Reason]++
	}
	reasons := byCount(count)
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", count[reason], reason)
	}
	return strings.Join(reasons, ", ")
}

// byCount returns the keys, those of the largest numbers first.
func byCount(count map[string]int) []string {
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}

func conventionNames() string {
	var names []string
	for _, c := range checkpoint.Conventions() {
		names = append(names, c.Name)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func formatNames(formats []quant.Format) string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// specBytes returns the bytes of a tensor.
func specBytes(s safetensors.Spec) int64 {
	n := int64(s.Dtype.Bits())
	for _, d := range s.Shape {
		n *= d
	}
	return n / 8
}
