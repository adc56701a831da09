// Package convert turns one checkpoint into another: it quantizes, dequantizes, or stores
// quantized weights in another convention, tile by tile, in the memory of a few tiles.
//
//	plan    read headers: decide what becomes of every weight; lay out every file of the
//	        result, its configuration and its ignore list
//	sweep   if a format needs it, find the amax of every weight, shared by fused siblings
//	tiles   read, convert and write at the planned offset, in any order, on any number of threads
//	commit  give the complete result its name, atomically
//
// Conventions and their schemes are named as in docs/conventions.md: compressed-tensors,
// modelopt, deepseek, mxfp8, gpt-oss, quark, mlx, gguf, plain.
package convert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Open opens a checkpoint: a Hugging Face directory, a safetensors file, or a GGUF file of an
// architecture that llama.cpp's convention covers, or a directory of its parts ([Plan.Split]).
// Close it when all plans have run.
func Open(path string) (*hf.Checkpoint, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && gguf.Named(path) {
		return llamacpp.Open(path)
	}
	if part := firstPart(path); part != "" {
		return llamacpp.Open(part)
	}
	return hf.Open(path)
}

// read is checkpoint.ReadContext. A source that lacks tensors is an error: its result would lack them, too.
func read(ctx context.Context, source *hf.Checkpoint) (*checkpoint.Model, error) {
	m, err := checkpoint.ReadContext(ctx, source)
	if err == nil && len(m.Missing) > 0 {
		return nil, fmt.Errorf("%s: %s: fetch it again", source.Path, m.Missing[0])
	}
	return m, err
}

// An Action is what a run does with a weight.
type Action uint8

const (
	Copy     Action = iota // copy its bytes
	Quantize               // write codes and scales
	Decode                 // write values of a floating-point dtype
	Relabel                // write its codes and scales in another convention
)

// String returns the name, such as "quantize".
func (a Action) String() string { return [...]string{"copy", "quantize", "decode", "relabel"}[a] }

// A decision is the plan for one weight.
type decision struct {
	*checkpoint.Weight
	action    Action
	quantizer *quant.Quantizer // of a weight to quantize; shared with others
	reason    Reason
	file      string // of the result
	stored    []checkpoint.Stored

	metadata [2]string // a key and a value for the metadata of the file; no key: none

	// If the result has the rows of the weight in another order: the bytes of a row there,
	// and the new index of a row.
	rowBytes int64
	row      func(int) int

	expert  int   // index of the weight in its tensors, if these hold several experts of a GGUF file
	experts int   // that these tensors hold; 0: they hold the weight alone
	joint   joint // the zero joint if the tensors hold the weight alone

	add  float32 // to every value of a decoded weight
	fold *fold   // of the elements of a decoded weight; nil: none
	cast *cast   // of a relabeled weight to another format; nil: none

	codes *[256]byte // what each byte of a copied tensor becomes; nil: the same

	inputs []*calibration.Input // of the layer, or of each expert; nil: not needed

	origin string // its name in the checkpoint, if the source is a GGUF file that keeps its own names; "" otherwise
}

// extent returns the range of the weight in one of its stored tensors, in bytes: the whole
// tensor, unless it holds several experts.
func (d decision) extent(s checkpoint.Stored) (begin, n int64) {
	n = specBytes(s.Spec)
	if d.joint.transposed { // it is a part of every column
		return 0, n * int64(d.joint.experts*d.joint.parts)
	}
	return int64(d.expert+d.joint.expert) * n, n
}

// bytes returns the bytes of the weight in the result.
func (d decision) bytes() (n int64) {
	for _, s := range d.stored {
		n += specBytes(s.Spec)
	}
	return n
}

// A file is one file of weights of the result.
type file struct {
	name   string
	layout *safetensors.Layout
}

// A Plan is a conversion that has not begun: everything except the data. It keeps the source,
// which must stay open.
type Plan struct {
	Format     quant.Format    // of the quantized weights, or of those without a rule; the zero Format if the result is not quantized
	Quantizer  quant.Quantizer // the behavior of PlanQuantize for this format, as the convention's clients need it
	Convention string          // of the result; "" if it is not quantized
	Scheme     string          // of the convention; "" if its scheme has no name
	Ignore     []string        // the ignore list of the configuration: the modules that are not quantized
	Notes      []string        // what the user should know about the result
	Reads      []string        // paths beside the source that the plan was made from: no run replaces them

	source     *checkpoint.Model
	convention *checkpoint.Convention // nil if the result is not quantized
	decisions  []decision             // in the order of the source
	files      []file
	kvCache    bool              // scales of an FP8 KV cache are stored
	rest       safetensors.Dtype // of the unquantized weights; 0: those of the source

	method     calibration.Method
	statistics string // QuantizeOptions.StatisticsKey, or the identity of the file; "" without
	distilled  string // QuantizeOptions.Distilled

	lacksStatistics bool // there is only the key

	mixture uint32     // QuantizeOptions.FileType
	whole   *ggufWhole // of a plan for llama.cpp; nil: another convention

	casting *CastOptions // of PlanCast; nil: none
	Casts   []Cast       // the weights that it casts, in the order of the source

	single bool              // the result is a file, not a directory
	config []byte            // config.json of the result; nil if there is none
	index  []byte            // the index; nil if there is none
	small  []checkpoint.File // other files that the plan makes

	patch *Patch // of a copy of the source; nil: another conversion

	worker  worker
	workers map[string]int // who writes each file of the result
}

// newPlan returns an empty plan for a result in a convention, nil if it is not quantized.
func newPlan(source *checkpoint.Model, c *checkpoint.Convention, q quant.Quantizer) *Plan {
	single := source.Source.Single && source.Source.Config == nil
	p := &Plan{source: source, convention: c, Format: q.Format, Quantizer: q, Ignore: []string{}, single: single}
	if c != nil {
		p.Convention = c.Name
		p.Scheme, _ = c.Scheme(q.Format)
	}
	if note := misread(source); note != "" {
		p.Notes = append(p.Notes, note)
	}
	p.Notes = append(p.Notes, source.Notes...)
	return p
}

// setFormat sets the format of the quantized weights, and their scheme.
func (p *Plan) setFormat(f quant.Format) {
	p.Format = f
	p.Scheme, _ = p.convention.Scheme(f)
}

// add completes a decision and appends it.
func (p *Plan) add(d decision) {
	first, _ := d.Part(checkpoint.Codes)
	d.file = p.fileOf(first.Shard)
	if d.action == Copy {
		d.stored = append([]checkpoint.Stored{{Spec: safetensors.Spec{Name: d.Name, Dtype: d.Dtype, Shape: first.Shape}}}, d.stored...)
	}
	p.decisions = append(p.decisions, d)
}

// ignoreList returns the entries for the modules that are not quantized.
func (p *Plan) ignoreList() []string {
	var coded []string
	for _, d := range p.decisions {
		if d.action == Quantize || d.action == Relabel {
			coded = append(coded, module(d.Name))
		}
	}
	return p.convention.IgnoreList(p.unquantized(), coded)
}

// unquantized returns the names of the modules that are not quantized.
func (p *Plan) unquantized() []string {
	listed := p.source.UnstoredHeads()
	for _, d := range p.decisions {
		module, ok := strings.CutSuffix(d.Name, ".weight")
		switch {
		case d.action == Quantize || d.action == Relabel:
		case ok && len(d.Shape) == 2:
			listed = append(listed, module)
		default:
			listed = append(listed, d.ExpertModules()...)
		}
	}
	return listed
}

// mixed returns the modules of each block format of the result if there are several.
func (p *Plan) mixed() (all []checkpoint.Modules) {
	shares := p.Shares()
	if len(shares) < 2 {
		return nil
	}
	for _, s := range shares {
		all = append(all, checkpoint.Modules{Format: s.Format})
	}
	for _, d := range p.decisions {
		if d.coded() {
			i := slices.IndexFunc(all, func(m checkpoint.Modules) bool { return m.Format.Name == p.formatOf(d).Name })
			all[i].Names = append(all[i].Names, module(d.Name))
		}
	}
	return all
}

// fileOf returns the file of the result for a file of the source: its name, unless the source is a GGUF
// model, which is one file here, and the result a directory.
func (p *Plan) fileOf(s hf.Shard) string {
	switch source := p.source.Source; {
	case source.Single && !p.single:
		return safetensors.ShardName(1, 1)
	case source.GGUF != nil:
		return source.Shards()[0].Name
	}
	return s.Name
}

// formatOf returns the format in which the result stores a quantized weight. A source may mix formats, which
// relabeled weights keep.
func (p *Plan) formatOf(d decision) quant.Format {
	switch {
	case d.action == Quantize:
		return d.quantizer.Format
	case d.cast != nil:
		return d.cast.To
	case d.action == Relabel && d.Quantized():
		return d.Weight.Format
	}
	return p.Format
}

// search returns the search by which scales were found: that of the plan, or that of the
// relabeled source; "" for none.
func (p *Plan) search() string {
	for _, d := range p.decisions {
		if d.action == Quantize && d.quantizer.Search != quant.NoSearch {
			return d.quantizer.Search.String()
		}
	}
	if p.Count(Relabel) > 0 {
		return p.source.ScaleSearch()
	}
	return ""
}

// choices returns the metadata of every file that say how scales and codes were chosen.
func (p *Plan) choices() map[string]string {
	metadata := map[string]string{}
	if search := p.search(); search != "" {
		metadata[checkpoint.ScaleSearchKey] = search
	}
	if method := p.Method(); method != "" {
		metadata[checkpoint.MethodKey] = method
	}
	return metadata
}

// complete lays out the files and makes the configuration.
func (p *Plan) complete(o checkpoint.Settings) error {
	if err := p.joinFor(p.convention); err != nil {
		return err
	}
	p.Ignore = p.ignoreList()
	o.Ignore = p.Ignore
	p.noteInputs()
	if !p.settleFormat() {
		if o.Mixed = p.mixed(); o.Mixed != nil {
			o.Unquantized = p.unquantized()
			p.Scheme = p.convention.MixedScheme()
		}
	}
	metadata := p.choices()
	if p.source.Source.Config == nil {
		if key, value, ok := p.convention.FileMetadata(p.Format, o); ok {
			metadata[key] = value
		}
	} else {
		p.small = p.convention.Files(p.Format, o)
	}
	if err := p.addText(); err != nil {
		return err
	}
	if err := p.layout(metadata); err != nil {
		return err
	}
	return p.configure(func(config []byte) ([]byte, error) {
		config, err := p.convention.Configure(config, p.Format, o)
		if err != nil || p.rest == 0 {
			return config, err
		}
		return configjson.WithTorchDtype(config, p.rest.Torch())
	})
}

// noteInputs adds a note if weights keep their codes, but not the quantization of their activations.
func (p *Plan) noteInputs() {
	n, first := 0, ""
	for _, d := range p.decisions {
		if d.action != Relabel || !d.Quantized() || d.cast != nil {
			continue
		}
		_, has := d.InputScale()
		if _, activations := p.convention.Scheme(d.Weight.Format); has && activations != checkpoint.Static {
			if n++; n == 1 {
				first = d.Name
			}
		}
	}
	if n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d weights, the first %s, keep the scales of their activations as metadata alone: clients do "+
			"not quantize these activations any more, or not by these scales; name a scheme that stores them if they should", n, first))
	}
}

// addText adds the tokenizer of a GGUF file that becomes a directory.
func (p *Plan) addText() error {
	if p.single || p.source.Source.GGUF == nil {
		return nil
	}
	text, err := llamacpp.ReadText(p.source.Source.GGUF)
	if err != nil {
		return err
	}
	p.small = append(p.small, text.Files...)
	if text.Missing != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the result has no tokenizer (%v): copy the tokenizer's files of the original model into it",
			text.Missing))
	}
	return nil
}

// layout plans the files of weights: one for each of the source, with the same name and
// metadata, and added metadata.
func (p *Plan) layout(added map[string]string) error {
	index := safetensors.Index{WeightMap: map[string]string{}}
	for _, shard := range p.source.Source.Shards() {
		var specs []safetensors.Spec
		name, metadata := p.fileOf(shard), map[string]string{}
		for key, value := range shard.File.Metadata() {
			if (!checkpoint.IsOwnMetadata(key) || p.patch != nil) && key != checksum.RecordKey {
				metadata[key] = value
			}
		}
		if p.patch == nil {
			metadata["format"] = p.convention.FileFormat()
		}
		maps.Copy(metadata, added)
		for _, d := range p.decisions {
			if d.file != name {
				continue
			}
			for _, s := range d.stored {
				if d.joint.expert > 0 {
					continue // in the tensor of the first
				} else if d.joint.experts > 0 {
					s.Shape = d.joint.shape(s.Shape)
				}
				specs = append(specs, s.Spec)
				index.WeightMap[s.Name] = name
				index.TotalSize += specBytes(s.Spec)
			}
			if d.metadata[0] != "" {
				metadata[d.metadata[0]] = d.metadata[1]
			}
			if d.action == Quantize || d.action == Relabel {
				if key, value, ok := p.convention.Metadata(p.formatOf(d), d.Name, d.Shape, d.Dtype); ok {
					metadata[key] = value
				}
			}
		}
		placeholder := p.placeholder(len(specs), func(d decision) bool { return d.file == name })
		metadata[checksum.RecordKey] = placeholder
		layout, err := safetensors.NewLayout(specs, metadata)
		if err == nil {
			err = layout.Reserve(placeholder)
		}
		if err != nil {
			return fmt.Errorf("%s: lay out the converted file: %w", shard.File.Name(), err)
		}
		p.files = append(p.files, file{name, layout})
	}
	if p.single || len(p.files) == 1 && p.files[0].name == safetensors.ShardName(1, 1) {
		return nil
	}
	var err error
	p.index, err = index.Marshal()
	return err
}

// configure sets config.json to an edited copy of the source's, if the source has one.
func (p *Plan) configure(edit func(config []byte) ([]byte, error)) error {
	if p.source.Source.Config == nil {
		return nil
	}
	config, err := edit(p.source.Source.Config)
	if err != nil {
		return fmt.Errorf("%s: %w", p.source.Source.Path, err)
	}
	p.config = config
	return nil
}

// reasons lists why weights are not quantized, most frequent first.
func (p *Plan) reasons() string {
	count := map[string]int{}
	for _, d := range p.decisions {
		count[d.reason.Detail]++
	}
	reasons := byCount(count)
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s (%d)", reason, count[reason])
	}
	return strings.Join(reasons, ", ")
}

// byCount returns the keys in decreasing order of their counts.
func byCount(count map[string]int) []string {
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}

// specBytes returns the bytes of a tensor.
func specBytes(s safetensors.Spec) int64 {
	n := int64(s.Dtype.Bits())
	for _, d := range s.Shape {
		n *= d
	}
	return n / 8
}
