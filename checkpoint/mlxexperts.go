package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mlxExperts are the families whose experts are written as mlx-lm holds them, in one tensor for each projection of a
// layer, P.switch_mlp.gate_proj beside P.experts.N.gate_proj of the model. Of others mlx-lm joins single experts with their
// scales, or changes further tensors only where it finds single ones (sanitize in mlx_lm/models at 0.32.2).
var mlxExperts = []string{"qwen2_moe", "qwen3_moe", "mixtral"}

// mlxWords are the families whose experts have other names of gate, up and down than in mlx-lm.
var mlxWords = []string{"mixtral", "phimoe", "minimax", "minimax_m2"}

// mlxNames returns the names of gate, up and down in the model.
func (m *Model) mlxNames() [3]string {
	if m.Family().OfType(mlxWords...) {
		return [3]string{"w1", "w3", "w2"}
	}
	return mlxProjections
}

// mlxProjections are the names of gate, up and down in mlx-lm.
var mlxProjections = [3]string{"gate_proj", "up_proj", "down_proj"}

const mlxModule = ".switch_mlp."

var singleExpertWeight = regexp.MustCompile(`^(.+)\.experts\.([0-9]{1,6})\.(\w+)\.weight$`)

// Joined returns the name of the tensor that holds the weight of one expert with those of the others of its layer, and
// the number of the expert. ok is false if files of the convention hold it alone.
func (c *Convention) Joined(m *Model, name string) (joined string, expert int, ok bool) {
	parts := singleExpertWeight.FindStringSubmatch(name)
	if !c.joined || parts == nil {
		return "", 0, false
	}
	names := m.mlxNames()
	if i := slices.Index(names[:], parts[3]); i >= 0 && m.Family().OfType(mlxExperts...) {
		expert, err := strconv.Atoi(parts[2])
		return parts[1] + mlxModule + mlxProjections[i] + weightSuffix, expert, err == nil
	}
	return "", 0, false
}

// splitJoined replaces the weights with all experts of a layer in a file for mlx-lm by those of single experts, under
// their names in the model.
func (m *Model) splitJoined() {
	if m.Convention == nil || !m.Convention.joined {
		return
	}
	projections := m.mlxNames()
	var all []*Weight
	for _, w := range m.Weights {
		parent, rest, ok := strings.Cut(w.Name, mlxModule)
		i := slices.Index(mlxProjections[:], strings.TrimSuffix(rest, weightSuffix))
		if !ok || i < 0 || len(w.Shape) != 3 || !w.Dense() {
			all = append(all, w)
			continue
		}
		delete(m.byName, w.Name)
		w.stack = nil
		for e := range int(w.Shape[0]) {
			single := w.part(fmt.Sprintf("%s.experts.%d.%s%s", parent, e, projections[i], weightSuffix), w.Shape[1], w.Shape[2])
			single.view, single.Joined = &view{of: w, first: e * int(w.Shape[1]), step: 1}, true
			all, m.byName[single.Name] = append(all, single), single
		}
	}
	m.Weights = all
}
