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
	Names  map[string]string     // other names, which may be those of tensors that get others
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
	var used, named int
	for _, w := range m.Raw() {
		shape, reshaped := patch.Shapes[w.Name]
		codes := patch.Bytes[w.Name]
		name, renamed := patch.Names[w.Name]
		if !renamed {
			name = w.Name
		}
		if reshaped && (count(shape) != count(w.Shape) || replaced[name]) {
			return nil, fmt.Errorf("patch: %s of shape %v cannot have shape %v", w.Name, w.Shape, shape)
		}
		if reshaped {
			named++
		}
		if renamed {
			named++
		}
		if codes != nil {
			named++
		}
		d := decision{Weight: w, codes: codes, stored: slices.Clone(patch.Beside[w.Name])}
		if used += len(d.stored); replaced[name] {
			continue
		}
		p.add(d)
		stored := &p.decisions[len(p.decisions)-1].stored[0]
		if stored.Name = name; reshaped {
			stored.Shape = shape
		}
	}
	if used != len(replaced) || named != len(patch.Shapes)+len(patch.Names)+len(patch.Bytes) || len(p.decisions) == 0 {
		return nil, errors.New("patch: it names a tensor that the checkpoint does not have, or two have one name")
	}
	for _, w := range patch.Copied {
		p.add(decision{Weight: w})
		p.decisions[len(p.decisions)-1].file = p.decisions[0].file
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

// count returns the number of elements of a shape.
func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// copied returns the files of another checkpoint that a patch copies from.
func (p *Plan) copied() (shards []hf.Shard) {
	if p.patch == nil {
		return nil
	}
	for _, w := range p.patch.Copied {
		t, _ := w.Part(checkpoint.Codes)
		if !slices.ContainsFunc(shards, func(s hf.Shard) bool { return s.File == t.Shard.File }) {
			shards = append(shards, t.Shard)
		}
	}
	return shards
}
