package lint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
)

// nameRules are about the names of tensors.
var nameRules = []Rule{
	{
		ID: "L61", Name: foreignNames, Severity: Error, Needs: Scalars, check: misnamed,
		explains:      []string{structure, "set-format", "expert-format", "unquantized-unlisted", "ignore-fused-partial", "kv-names"},
		explainsWhole: []string{"none-quantized"},
		What:          "the tensors of a weight fit the declared format by dtypes and shapes, under names of another convention or of each other",
		Why:           "clients do not find them, or read scales as codes",
		Remedy:        "`repair`",
		Source:        "the tables of names of all conventions (package checkpoint)",
	},
}

const foreignNames = "foreign-names"

// A renaming is what is known of the names of a module.
type renaming struct {
	module string
	way    *checkpoint.Renaming // nil: none is sure
	reason string               // why none is sure
}

// renamings chooses between the ways to name the tensors of each module that the convention does not read: the one that decodes to
// magnitudes of a language model.
func (c *checker) renamings() (all []renaming, err error) {
	modules, err := c.Renamings()
	if err != nil {
		return nil, err
	}
	for _, ways := range modules {
		r := renaming{module: moduleOf(ways[0].Weight.Name)}
		var sound []*checkpoint.Renaming
		var worst float32
		for i := range ways {
			if err := c.ctx.Err(); err != nil {
				return nil, err
			}
			amax, err := magnitude(ways[i].Weight)
			if err != nil {
				return nil, err
			}
			if amax > 0 && amax < soundAmax {
				sound = append(sound, &ways[i])
			}
			worst = amax
		}
		switch {
		case len(sound) == 0:
			r.reason = fmt.Sprintf("its largest magnitude would be %.3g: its scales may be reciprocals, or its values are all 0", worst)
		case len(sound) > 1:
			r.reason = fmt.Sprintf("it could be read in %d ways: %s; or %s", len(sound), described(sound[0]), described(sound[1]))
		case sound[0].Doubt != "":
			r.reason = sound[0].Doubt
		default:
			r.way = sound[0]
		}
		all = append(all, r)
	}
	return all, nil
}

// magnitude returns the largest magnitude of the first rows of a weight; Inf if one is NaN.
func magnitude(w *checkpoint.Weight) (amax float32, err error) {
	const rows = 128 // of a block, at most
	n, _ := w.Matrix()
	x, err := w.Read(0, min(n, rows))
	for _, v := range x.Data {
		if v != v {
			return float32(math.Inf(1)), err
		}
		amax = max(amax, v, -v)
	}
	return amax, err
}

// described describes new names.
func described(way *checkpoint.Renaming) string {
	var texts []string
	for _, t := range way.Tensors {
		texts = append(texts, renamedText(way, t))
	}
	return strings.Join(texts, ", ")
}

// renamedText describes the new name of a tensor of a module.
func renamedText(way *checkpoint.Renaming, t checkpoint.Renamed) string {
	module := moduleOf(way.Weight.Name) + "."
	text := strings.TrimPrefix(t.From.Name, module)
	if t.From.Name != t.To.Name {
		text += " is " + strings.TrimPrefix(t.To.Name, module)
	}
	if t.To.Value != nil {
		text += fmt.Sprintf(" with the number %g", math.Float32frombits(binary.LittleEndian.Uint32(t.To.Value)))
	}
	return text
}

func misnamed(c *checker) {
	all, err := c.renamings()
	if err != nil {
		c.err = err
		return
	}
	for _, r := range all {
		if r.way != nil {
			c.report(r.module, "by dtypes and shapes %s", described(r.way))
		} else {
			c.report(r.module, "its tensors have names of another convention, and %s", r.reason)
		}
	}
}

// rename gives tensors the names of the convention. Weights of their sets are then of one format with them.
func (r *repairer) rename() (repaired func(f *Finding) bool, err error) {
	all, err := r.renamings()
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.way == nil {
			continue
		}
		r.renamed[one.module] = one.way.Weight
		codes, _ := one.way.Weight.Part(checkpoint.Codes)
		for _, t := range one.way.Tensors {
			if t.From.Name != t.To.Name {
				r.repair.Patch.Names[t.From.Name] = t.To.Name
			}
			if t.To.Value != nil {
				r.repair.Patch.Beside[codes.Name] = append(r.repair.Patch.Beside[codes.Name], t.To)
			}
			r.change(foreignNames, t.From.Name, "%s", renamedText(one.way, t))
		}
	}
	return func(f *Finding) bool {
		if f.Rule.Name == foreignNames {
			return r.renamed[f.Tensor] != nil
		}
		w, ok := r.Lookup(f.Tensor)
		for _, becomes := range r.renamed { // another weight of the set, which the finding names
			if ok && w.FormatName() == becomes.FormatName() && strings.Contains(f.Text, becomes.Name+" ") {
				return true
			}
		}
		return false
	}, nil
}
