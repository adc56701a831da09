package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// A Patch is what PlanPatch changes in a checkpoint. The names are those of tensors of the files.
type Patch struct {
	Shapes map[string][]int64    // other dimensions of as many elements
	Bytes  map[string]*[256]byte // of elements of 8 bits: what each becomes
	Beside map[string][]checkpoint.Stored
	// Beside has tensors with known bytes, in the file of another tensor. They replace those of their names.
	Copied []*checkpoint.Weight // tensors of another checkpoint (checkpoint.Model.Raw), which must stay open
	Config []byte               // config.json; nil: unchanged
	Files  []checkpoint.File    // small files, which replace those of their names
}

// PlanPatch plans a copy of a checkpoint with the changes of a patch. All other tensors, their metadata and all other files are
// those of the source, byte by byte; an index is written from the headers. It returns an error for a GGUF file, if a name
// is not in the source, or when ctx ends.
func PlanPatch(ctx context.Context, source *hf.Checkpoint, patch Patch) (*Plan, error) {
	m, err := checkpoint.ReadContext(ctx, source)
	if err != nil {
		return nil, err
	}
	if m.Architecture != "" {
		return nil, fmt.Errorf("%s: it is a GGUF file, and only safetensors files are patched", source.Path)
	}
	p := newPlan(m, nil, quant.Quantizer{})
	p.Notes, p.patch = nil, &patch
	replaced := map[string]bool{}
	for _, stored := range patch.Beside {
		for _, s := range stored {
			replaced[s.Name] = true
		}
	}
	used := 0
	for _, w := range m.Raw() {
		d := decision{Weight: w, codes: patch.Bytes[w.Name], stored: slices.Clone(patch.Beside[w.Name])}
		if used += len(d.stored); replaced[w.Name] {
			continue
		}
		p.add(d)
		if shape, ok := patch.Shapes[w.Name]; ok {
			p.decisions[len(p.decisions)-1].stored[0].Shape = shape
		}
	}
	for _, w := range patch.Copied {
		p.add(decision{Weight: w})
		p.decisions[len(p.decisions)-1].file = p.decisions[0].file
	}
	if used != len(replaced) {
		return nil, errors.New("patch: a tensor is to be beside one that the checkpoint does not have, or two have one name")
	}
	p.small = patch.Files
	if err := p.layout(nil); err != nil {
		return nil, err
	}
	return p, p.configure(func(config []byte) ([]byte, error) {
		if patch.Config != nil {
			return patch.Config, nil
		}
		return config, nil
	})
}
