package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// A Renaming is names for the tensors of a module with which the convention of the checkpoint reads a weight from them.
type Renaming struct {
	Weight  *Weight   // as it is then read
	Tensors []Renamed // those that get another name, or other bytes
	Doubt   string    // why a number contradicts its name; "" if none does
}

// A Renamed is a tensor of a file and what it becomes.
type Renamed struct {
	From hf.Tensor
	To   Stored // Value is nil if the bytes stay: they change where a file has a number in another direction, or in another shape
}

// A partRole is what a name says of a tensor in some convention: whether it is a scale of activations, and what number a scale of a
// whole tensor is.
type partRole struct {
	suffix    string // of the name of the module
	part      Part
	direction direction
}

// partRoles are the names of the parts of weights in all conventions, the longest first. A name that two conventions have, the first one
// explains.
var partRoles = func() (roles []partRole) {
	add := func(suffix string, p Part, d direction) {
		if full := partName(weightSuffix, suffix); !slices.ContainsFunc(roles, func(r partRole) bool { return r.suffix == full }) {
			roles = append(roles, partRole{full, p, d})
		}
	}
	for _, c := range readableConventions() {
		if c.oneFile { // no suffixes in safetensors files
			continue
		}
		for _, s := range slices.Concat(c.schemes, c.also) {
			add(s.codes, Codes, decode)
			add(s.scales, Scales, decode)
			for _, r := range []partRole{{s.global, Global, s.direction}, {s.shape, Dimensions, decode}, {s.input, Input, s.inputScale}} {
				if r.suffix != "" {
					add(r.suffix, r.part, r.direction)
				}
			}
		}
	}
	slices.SortStableFunc(roles, func(a, b partRole) int { return cmp.Compare(len(b.suffix), len(a.suffix)) })
	return roles
}()

// roleOf returns the module of a tensor, and what its name says.
func roleOf(tensor string) (module string, r partRole, ok bool) {
	for _, r := range partRoles {
		if module, ok := strings.CutSuffix(tensor, r.suffix); ok && module != "" {
			return module, r, true
		}
	}
	return "", partRole{}, false
}

// Renamings returns, for each module whose tensors the convention of the checkpoint does not read under their names, all ways to name
// them that fit a described block format; modules without one are left out. Dtypes and shapes decide which tensor is what: names tell
// only scales of activations, which have the shape of a global scale. There is a way for each direction in which the number of a global
// scale may be meant: whoever asks decides by values. The only errors are those of reading numbers.
func (m *Model) Renamings() (modules [][]Renaming, err error) {
	if m.Convention == nil || m.Convention.metadata || m.Convention.oneFile {
		return nil, nil
	}
	tensors, order := map[string][]hf.Tensor{}, []string(nil)
	for _, t := range m.Source.Tensors() {
		module, _, ok := roleOf(t.Name)
		if w, has := m.byName[module+weightSuffix]; !ok || has && w.hasCodes() {
			continue
		}
		if tensors[module] == nil {
			order = append(order, module)
		}
		tensors[module] = append(tensors[module], t)
	}
	for _, module := range order {
		var ways []Renaming
		for _, g := range m.described.groups {
			for _, s := range m.Convention.layouts(g.format, g.scheme) {
				fits, err := s.renamings(module, tensors[module])
				if err != nil {
					return nil, err
				}
				if ways = append(ways, fits...); len(fits) > 0 {
					break // the first layout is the one that is written
				}
			}
		}
		if len(ways) > 0 {
			modules = append(modules, ways)
		}
	}
	return modules, nil
}

// renamings returns the ways to name tensors of a module so that they are those of a scheme.
func (s *scheme) renamings(module string, tensors []hf.Tensor) (ways []Renaming, err error) {
	if s.interleaved != nil {
		return nil, nil
	}
	var inputs, others []hf.Tensor
	for _, t := range tensors {
		if _, role, _ := roleOf(t.Name); role.part == Input {
			inputs = append(inputs, t)
		} else {
			others = append(others, t)
		}
	}
	for i := range others {
		w := &Weight{Name: module + weightSuffix, Format: s.format, Global: 1, scheme: s}
		shape, ok := s.weightShape(others[i].Shape, others[i].Dtype)
		if !ok || others[i].Dtype != s.codesDtype() {
			continue
		}
		w.Shape = shape
		if stored := s.tensors(w.Name, shape); w.accepts(others[i], stored[0]) {
			w.parts[Codes] = &others[i]
			w.eachFit(stored[1:], others, func(w Weight) {
				if err == nil {
					var found []Renaming
					found, err = w.renamed(stored, inputs)
					ways = append(ways, found...)
				}
			})
		}
	}
	return ways, err
}

// eachFit calls f with each way to choose the parts of w that are wanted from tensors.
func (w Weight) eachFit(wanted []Stored, tensors []hf.Tensor, f func(w Weight)) {
	if len(wanted) == 0 {
		f(w)
		return
	}
	want := wanted[0]
	for i := range tensors {
		t := &tensors[i]
		taken := slices.ContainsFunc(w.parts[:], func(p *hf.Tensor) bool { return p == t })
		fits := w.accepts(*t, want) || want.Part == Global && t.Dtype == safetensors.F32 && t.Elements() == 1
		if !taken && fits {
			w.parts[want.Part] = t
			w.eachFit(wanted[1:], tensors, f)
		}
	}
}

// renamed returns the names of the parts of w, one way for each direction of its global scale.
func (w Weight) renamed(stored []Stored, inputs []hf.Tensor) (ways []Renaming, err error) {
	s := w.scheme
	directions := []direction{decode}
	var number float32
	if global := w.parts[Global]; global != nil {
		if number, err = readNumber(*global); err != nil {
			return nil, err
		}
		directions = append(directions, inverse)
		if _, role, _ := roleOf(global.Name); role.direction == amax {
			directions = append(directions, amax)
		}
	}
	for _, d := range directions {
		of := w
		way := Renaming{Weight: &of}
		for _, to := range stored {
			from := *w.parts[to.Part]
			if to.Part == Dimensions {
				to.Value = nil
			}
			if to.Part == Global {
				if of.Global, of.stored = d.global(number), number; d != s.direction {
					of.stored = s.direction.stored(of.Global)
				}
				if of.stored != number || !slices.Equal(from.Shape, to.Shape) {
					to.Value = GlobalBytes(of.stored)
				}
			}
			way.add(from, to)
		}
		if len(inputs) == 1 && s.input != "" {
			if err := way.addInput(inputs[0]); err != nil {
				return nil, err
			}
		}
		same := func(other Renaming) bool { return other.Weight.stored == of.stored }
		moved := func(t Renamed) bool { return t.From.Name != t.To.Name }
		if slices.ContainsFunc(way.Tensors, moved) && !slices.ContainsFunc(ways, same) {
			ways = append(ways, way)
		}
	}
	return ways, nil
}

// add adds a tensor if it changes.
func (r *Renaming) add(from hf.Tensor, to Stored) {
	if from.Name != to.Name || to.Value != nil {
		r.Tensors = append(r.Tensors, Renamed{from, to})
	}
}

// addInput adds the scale of activations, in the direction that its name has where it is known. Such a scale is below 1 in formats with
// a global scale, which bound it by 1/2688 of the largest activation.
func (r *Renaming) addInput(from hf.Tensor) error {
	s := r.Weight.scheme
	_, role, _ := roleOf(from.Name)
	if from.Dtype != safetensors.F32 || from.Elements() != 1 {
		return nil
	}
	number, err := readNumber(from)
	if err != nil {
		return err
	}
	to := Stored{Part: Input, Spec: safetensors.Spec{Name: partName(r.Weight.Name, s.input), Dtype: safetensors.F32, Shape: s.scalar}}
	if role.direction != s.inputScale {
		to.Value = GlobalBytes(s.inputScale.stored(role.direction.global(number)))
	} else if !slices.Equal(from.Shape, to.Shape) {
		to.Value = GlobalBytes(number)
	}
	if scale := role.direction.global(number); s.format.Global && from.Name != to.Name && !(scale > 0 && scale <= 1) {
		r.Doubt = fmt.Sprintf("the scale of activations %s is %g, and by its name %s: its direction is not known", from.Name, number,
			role.direction)
	}
	r.add(from, to)
	return nil
}

// readNumber reads a tensor of one F32.
func readNumber(t hf.Tensor) (float32, error) {
	var value [1]float32
	err := readDense(value[:], t, Tile{To: 1, ToCol: 1}.DenseSpans(1))
	return value[0], err
}
