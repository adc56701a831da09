package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Decision is the plan for one weight.
type Decision struct {
	Name        string
	Module      string // of the checkpoint, that has the weight: Name, without .weight, unless a GGUF file keeps its own names
	Shape       []int64
	Action      Action
	Format      string // in the result: a block format, or a dtype in lower case
	Reason      Reason
	File        string                 // of the result
	Activations checkpoint.Activations // of a weight to quantize: how clients treat them
	Inputs      quant.Format           // to which clients quantize these activations; zero: they do not
	SourceBytes int64                  // in the source, with scales
	Bytes       int64                  // in the result, with scales

	// Tensors are the tensors of the result that hold the weight, with their byte ranges in
	// File. Interleaved codes and scales of a GGUF file are U8. Of a tensor with several
	// experts, the range is that of the weight.
	Tensors []safetensors.TensorInfo
}

// Decisions returns the plan for every weight, in the order of the source. Each is made when it is reached.
func (p *Plan) Decisions() iter.Seq[Decision] {
	return func(yield func(Decision) bool) {
		layouts := p.layouts()
		for _, d := range p.decisions {
			one := Decision{Name: d.Name, Module: module(cmp.Or(d.origin, d.Name)), Shape: d.Shape, Action: d.action,
				Format: p.formatName(d), Reason: d.reason, File: d.file, SourceBytes: d.StoredBytes(), Bytes: d.bytes()}
			if d.action == Quantize {
				_, one.Activations = p.convention.Scheme(d.quantizer.Format)
				one.Inputs = p.convention.InputFormat(d.quantizer.Format)
			}
			for _, s := range d.stored {
				offset, _ := layouts[d.file].Offset(s.Name)
				begin, n := d.extent(s)
				one.Tensors = append(one.Tensors, safetensors.TensorInfo{Name: s.Name, Dtype: s.Dtype, Shape: s.Shape, Begin: offset + begin,
					End: offset + begin + n})
			}
			if !yield(one) {
				return
			}
		}
	}
}

// Weights returns the number of weights.
func (p *Plan) Weights() int { return len(p.decisions) }

// layouts returns the layouts of the files of weights by name.
func (p *Plan) layouts() map[string]*safetensors.Layout {
	layouts := map[string]*safetensors.Layout{}
	for _, f := range p.files {
		layouts[f.name] = f.layout
	}
	return layouts
}

// formatName returns the format of a weight in the result: a block format, or a dtype in lower
// case.
func (p *Plan) formatName(d decision) string {
	switch d.action {
	case Quantize:
		return d.quantizer.Format.Name
	case Decode:
		return strings.ToLower(d.stored[0].Dtype.String())
	}
	if d.cast != nil {
		return d.cast.To.Name
	}
	return d.FormatName()
}

// Count returns the number of weights of an action that the run converts. The scales of a KV cache are
// not counted.
func (p *Plan) Count(a Action) (n int) {
	for i, d := range p.decisions {
		if d.action == a && p.mine(i) && (a != Relabel || d.Quantized()) {
			n++
		}
	}
	return n
}

// A File is one file of weights of the result.
type File struct {
	Name       string
	Size       int64 // bytes
	HeaderSize int64 // bytes before the data
	Tensors    int
	Worker     int // who writes it; 0 if there is only one run
}

// Files returns the files of weights of the whole result, in the order of the source.
func (p *Plan) Files() (files []File) {
	for _, f := range p.files {
		files = append(files, File{f.name, f.layout.FileSize(), int64(len(f.layout.HeaderBytes())), len(f.layout.Tensors()), p.workers[f.name]})
	}
	return files
}

// Source returns the checkpoint that the plan converts.
func (p *Plan) Source() *hf.Checkpoint { return p.source.Source }

// SourceBytes returns the bytes of the source's tensors that the run converts, and the bytes
// that it reads: more, if it measures maxima first.
func (p *Plan) SourceBytes() (stored, read int64) {
	for i, d := range p.decisions {
		if p.mine(i) {
			stored += d.StoredBytes()
		}
	}
	read = stored
	for _, members := range p.groups() {
		for _, i := range members {
			read += p.decisions[i].StoredBytes()
		}
	}
	return stored, read
}

// Bytes returns the bytes of the files of weights that the run writes.
func (p *Plan) Bytes() (n int64) {
	for _, f := range p.files {
		if p.writes(f.name) {
			n += f.layout.FileSize()
		}
	}
	return n
}

// Config returns the bytes of config.json of the result, nil if there is none.
func (p *Plan) Config() []byte { return p.config }

// Index returns the bytes of the index of the result, nil if there is none.
func (p *Plan) Index() []byte { return p.index }

// Companions returns the files of the result without weights: config.json, the index, further
// files of the convention, and auxiliary files copied from the source. If there are several
// workers, the first writes them.
func (p *Plan) Companions() (files []hf.Other) {
	if p.config != nil {
		files = append(files, hf.Other{Name: hf.ConfigName, Size: int64(len(p.config))})
	}
	if p.index != nil {
		files = append(files, hf.Other{Name: safetensors.IndexName, Size: int64(len(p.index))})
	}
	for _, f := range p.small {
		files = append(files, hf.Other{Name: f.Name, Size: int64(len(f.Data))})
	}
	return append(files, p.others()...)
}

// ConfigChanges returns the members of config.json that differ from the source's, and the names
// of removed members. NaN and infinities are zeros.
func (p *Plan) ConfigChanges() (set map[string]json.RawMessage, removed []string, err error) {
	if p.config == nil {
		return nil, nil, nil
	}
	var before, after map[string]json.RawMessage
	if err := json.Unmarshal(configjson.Standard(p.source.Source.Config), &before); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(configjson.Standard(p.config), &after); err != nil {
		return nil, nil, err
	}
	set = map[string]json.RawMessage{}
	for name, value := range after {
		if !bytes.Equal(value, before[name]) {
			set[name] = value
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			removed = append(removed, name)
		}
	}
	return set, removed, nil
}

// others returns the auxiliary files of the source that are copied: all except descriptions of
// its quantization. A patch copies all that it does not replace.
func (p *Plan) others() []hf.Other {
	if p.single || p.whole != nil {
		return nil
	}
	if p.patch != nil {
		return slices.DeleteFunc(slices.Clone(p.source.Source.Others()), func(o hf.Other) bool {
			return slices.ContainsFunc(p.small, func(f checkpoint.File) bool { return f.Name == o.Name })
		})
	}
	return slices.DeleteFunc(slices.Clone(p.source.Source.Others()), func(o hf.Other) bool { return checkpoint.IsSidecar(o.Name) })
}
