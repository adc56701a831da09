package convert

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/safetensors"
)

// Config returns the bytes of config.json of the result, nil where it has none.
func (p *Plan) Config() []byte { return p.config }

// Index returns the bytes of the index of the result, nil where it has none.
func (p *Plan) Index() []byte { return p.index }

// Companions returns the files of the result that are not of weights: config.json,
// the index, others that a convention has, and those that go along from the source.
// Of several workers, the first writes them.
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

// ConfigChanges returns the members of config.json that are not those of the
// source's, and the names of those that are gone; NaN and infinities as zeros.
func (p *Plan) ConfigChanges() (set map[string]json.RawMessage, gone []string, err error) {
	if p.config == nil {
		return nil, nil, nil
	}
	var before, after map[string]json.RawMessage
	if err := json.Unmarshal(configjson.Standard(p.Source.Source.Config), &before); err != nil {
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
			gone = append(gone, name)
		}
	}
	return set, gone, nil
}

// FormatName returns what a weight is in the result: the name of the block format, or
// the dtype in lower case.
func (p *Plan) FormatName(d Decision) string {
	switch d.Action {
	case Quantize:
		return p.Format.Name
	case Decode:
		return strings.ToLower(d.Stored[0].Dtype.String())
	}
	return d.Weight.FormatName()
}

// WorkerOf returns which of the workers writes a file of weights; 0 where one run
// writes everything.
func (p *Plan) WorkerOf(file string) int { return p.workers[file] }

// Idle returns the workers that have no file of weights to write: a worker writes
// whole files, and there may be fewer of them than workers.
func (p *Plan) Idle() (workers []int) {
	busy := map[int]bool{}
	for _, worker := range p.workers {
		busy[worker] = true
	}
	for i := range p.worker.Count {
		if !busy[i] {
			workers = append(workers, i)
		}
	}
	return workers
}

// others returns the files of the source that go along: all but those that say how
// it was quantized.
func (p *Plan) others() []hf.Other {
	if p.single {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Source.Source.Others()), func(o hf.Other) bool { return checkpoint.IsSidecar(o.Name) })
}
