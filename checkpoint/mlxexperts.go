package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mlxExperts are the families whose experts mlx-lm holds in one tensor for each projection of a layer,
// P.switch_mlp.gate_proj beside P.experts.N.gate_proj of the model, and the names of gate, up and down in the model
// (sanitize in mlx_lm/models at 0.32.2). A file that mlx-lm writes has its own names, and it loads such files of all
// families.
var mlxExperts = []struct {
	types       []string
	projections [3]string
}{
	{[]string{"qwen2_moe", "qwen3_moe", "qwen3_next", "olmoe", "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe",
		"glm4_moe_lite", "ernie4_5_moe", "jamba", "bailing_moe", "exaone_moe", "mellum"}, mlxProjections},
	{[]string{"mixtral", "phimoe", "minimax", "minimax_m2"}, [3]string{"w1", "w3", "w2"}},
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
	for _, row := range mlxExperts {
		if i := slices.Index(row.projections[:], parts[3]); i >= 0 && m.Family().OfType(row.types...) {
			expert, err := strconv.Atoi(parts[2])
			return parts[1] + mlxModule + mlxProjections[i] + weightSuffix, expert, err == nil
		}
	}
	return "", 0, false
}

// splitJoined replaces the weights with all experts of a layer in a file for mlx-lm by those of single experts, under
// their names in the model.
func (m *Model) splitJoined() {
	if m.Convention == nil || !m.Convention.joined {
		return
	}
	projections := mlxProjections
	for _, row := range mlxExperts {
		if m.Family().OfType(row.types...) {
			projections = row.projections
		}
	}
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
