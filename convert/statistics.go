package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// solver is the version of the methods: raise it when the same statistics lead to other scales or codes, so that no run resumes what
// another version began. Tests set it.
var solver = 2

// DefaultMethod returns the method for weights in a convention, nil for the default one: in a GGUF file, one that needs no products of
// columns.
func DefaultMethod(c *checkpoint.Convention) calibration.Method {
	if c.OneFile() {
		return calibration.Search
	}
	return calibration.Solve
}

// useStatistics gives every weight to quantize the statistics of its input. It returns an error if some have
// none, as no weight is quantized by a lesser method than the one asked for. As in llama-quantize, this does not hold for types of GGUF
// files, nor for an importance matrix: a weight without an entry, such as an output head, is quantized without.
func (p *Plan) useStatistics(o QuantizeOptions) error {
	if p.method, p.distilled = o.Method, o.Distilled; p.method == calibration.Nearest {
		return nil
	}
	if p.statistics = o.StatisticsKey; o.Statistics == nil && p.statistics != "" {
		p.lacksStatistics = true
		return nil
	}
	if o.Statistics == nil {
		return fmt.Errorf("method %s needs statistics of the inputs", p.method)
	}
	inputsOf, err := p.lookup(o.Statistics)
	if err != nil {
		return err
	}
	var missing, without []string
	with := 0
	for i, d := range p.decisions {
		if d.action != Quantize || !p.method.Supports(d.quantizer.Format) {
			continue
		}
		inputs, err := inputsOf(d)
		switch {
		case err != nil:
			return err
		case inputs != nil:
			with++
		case o.Statistics.Record() == nil && d.quantizer.Format.Scaled():
			missing = append(missing, d.Name)
		default:
			without = append(without, d.Name)
		}
		p.decisions[i].inputs = inputs
	}
	if with == 0 && missing == nil && without != nil {
		return fmt.Errorf("the statistics have no input of %s, nor of the %d other weights: they are of another model", without[0],
			len(without)-1)
	}
	if without != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the statistics have no input of %d of %d weights, the first %s: these are quantized without",
			len(without), len(without)+with, without[0]))
	}
	if len(missing) > 0 {
		return fmt.Errorf("the statistics have no input of %s (%d of %d weights): collect them with this model and a longer text, or exclude "+
			"these weights", missing[0], len(missing), p.Count(Quantize))
	}
	if p.statistics == "" {
		p.statistics = o.Statistics.Identity()
	}
	p.noteFewTokens()
	p.noteDead()
	p.noteForeign(o.Statistics)
	return nil
}

// noteForeign adds a note if the statistics have inputs of modules that the source lacks.
func (p *Plan) noteForeign(s *calibration.Statistics) {
	known := map[string]bool{}
	for _, d := range p.decisions {
		for _, module := range d.layerModules() {
			known[module] = true
		}
	}
	var foreign []string
	for _, in := range s.Inputs {
		if !slices.ContainsFunc(in.Modules, func(module string) bool { return known[module] }) {
			foreign = append(foreign, in.Modules[0])
		}
	}
	if len(foreign) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d inputs of the statistics, the first that of %s, are of no weight of this model: they "+
			"may be of another one", len(foreign), len(s.Inputs), foreign[0]))
	}
}

// lookup returns what finds the inputs of a weight, one of each expert that it holds; nil if one is missing.
func (p *Plan) lookup(s *calibration.Statistics) (func(d decision) ([]*calibration.Input, error), error) {
	if s.Record() == nil {
		return func(d decision) ([]*calibration.Input, error) { return p.inputsOf(d, s) }, nil
	}
	if p.method != calibration.Search {
		return nil, fmt.Errorf("method %s needs the products of the columns of each input, which an importance matrix lacks: choose --method %s",
			p.method, calibration.Search)
	}
	if p.convention.OneFile() {
		return func(d decision) ([]*calibration.Input, error) {
			return importanceOf(d, s, llamacpp.Place{Name: d.stored[0].Name, Expert: d.expert, Experts: d.experts})
		}, nil
	}
	model, err := llamacpp.Describe(p.source.Source)
	if err != nil {
		return nil, fmt.Errorf("an importance matrix has names of a GGUF file, and this checkpoint has none: %w", err)
	}
	return func(d decision) (inputs []*calibration.Input, err error) {
		for _, module := range d.layerModules() {
			at, err := model.Place(module+".weight", d.Shape)
			if err != nil {
				return nil, err
			}
			one, err := importanceOf(d, s, at)
			if one == nil || err != nil {
				return nil, err
			}
			inputs = append(inputs, one...)
		}
		return inputs, nil
	}, nil
}

// importanceOf returns the inputs of a weight, at a place in a GGUF file, in an importance matrix: one for each matrix that it holds there.
func importanceOf(d decision, s *calibration.Statistics, at llamacpp.Place) (inputs []*calibration.Input, err error) {
	_, cols := d.Matrix()
	first, n, of := 0, 1, max(1, at.Experts)
	switch {
	case at.Experts > 0:
		first = at.Expert
	case len(d.Shape) == 3:
		n, of = int(d.Shape[0]), int(d.Shape[0])
	}
	for i := first; i < first+n; i++ {
		in, err := s.Importance(at.Name, cols, of, i)
		if in == nil || err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// inputsOf returns the inputs of a weight, one of each expert that it holds; nil if one is missing.
func (p *Plan) inputsOf(d decision, s *calibration.Statistics) (inputs []*calibration.Input, err error) {
	_, cols := d.Matrix()
	for _, module := range d.layerModules() {
		in, ok := s.Of(module)
		if !ok {
			return nil, nil
		}
		if in.Width() != cols {
			return nil, fmt.Errorf("%s: it has %d columns, and the statistics are of an input of %d: they are of another model", d.Name, cols,
				in.Width())
		}
		if p.method == calibration.Solve && !in.HasHessian() {
			return nil, fmt.Errorf("method %s needs the products of the columns of each input, which the statistics lack: "+
				"collect them with calibrate --hessian, or choose --method %s", p.method, calibration.Search)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// layerModules returns a module for each input of a weight: one, or one of each expert that it holds.
func (d decision) layerModules() (modules []string) {
	for e := 0; len(d.Shape) == 3 && e < int(d.Shape[0]); e++ {
		if expert := d.ExpertModule(e); expert != nil {
			modules = append(modules, expert[0]) // the others have the same input
		}
	}
	if modules == nil {
		return []string{module(cmp.Or(d.origin, d.Name))}
	}
	return modules
}

// noteFewTokens adds a note if experts have few tokens of their own.
func (p *Plan) noteFewTokens() {
	experts, few, none := map[*calibration.Input]bool{}, 0, 0
	for _, d := range p.decisions {
		for _, in := range d.inputs {
			if !in.IsExpert() || experts[in] {
				continue
			}
			experts[in] = true
			switch {
			case in.Tokens == 0:
				none++
			case in.Tokens < int64(in.Width()):
				few++
			}
		}
	}
	if few+none > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("of %d inputs of experts, %d had no token and %d fewer than columns: these lean on all tokens "+
			"of their layer; calibrate on a longer text",
			len(experts), none, few))
	}
}

// noteDead adds a note if columns of inputs are zero for every token, so that statistics say nothing about them.
func (p *Plan) noteDead() {
	seen, inputs, dead, first := map[*calibration.Input]bool{}, 0, 0, ""
	for _, d := range p.decisions {
		for _, in := range d.inputs {
			n := 0
			for _, v := range in.Square {
				if v == 0 {
					n++
				}
			}
			if n == 0 || seen[in] {
				continue
			}
			if seen[in] = true; first == "" {
				first = in.Modules[0]
			}
			inputs, dead = inputs+1, dead+n
		}
	}
	if dead > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d columns of %d inputs, the first that of %s, are zero for every token: their elements are "+
			"rounded to nearest; calibrate on a longer text",
			dead, inputs, first))
	}
}

// inputRows returns the number of rows of a weight that have the same input; 0: all.
func (d decision) inputRows() int {
	if len(d.inputs) < 2 {
		return 0
	}
	return int(d.Shape[1])
}

// input returns the input of a tile, whose rows share one; nil without statistics.
func (d decision) input(t checkpoint.Tile) *calibration.Input {
	switch n := d.inputRows(); {
	case d.inputs == nil:
		return nil
	case n == 0:
		return d.inputs[0]
	default:
		return d.inputs[t.From/n]
	}
}

// Method returns the method that chose scales and codes, or that of the relabeled source; "" for nearest.
func (p *Plan) Method() string {
	switch {
	case p.distilled != "":
		return p.method.String() + ", " + p.distilled
	case p.method != calibration.Nearest:
		return p.method.String()
	case p.Count(Relabel) > 0:
		return p.source.Method()
	}
	return ""
}

// factors are those of the inputs whose weights are being quantized. Places count the inputs of all weights in their order. A
// factor is held until no place from the first unfinished one to heldPlaces after the last that asked for one needs it.
type factors struct {
	lock  sync.Mutex
	make  sync.Mutex // one factor is made at a time, which takes several times its memory
	known map[*calibration.Input]*inputFactor
	first []int // place of a weight
	uses  map[*calibration.Input][]int
}

// An inputFactor is the factor of an input, once it is made.
type inputFactor struct {
	make func() (*calibration.Factor, error)
}

// heldPlaces is the number of places that are looked at for another use of a factor: q, k and v have one, with other weights
// between them, in an order that depends on the file.
const heldPlaces = 8

func newFactors(decisions []decision) *factors {
	f := &factors{known: map[*calibration.Input]*inputFactor{}, uses: map[*calibration.Input][]int{}}
	place := 0
	for _, d := range decisions {
		f.first = append(f.first, place)
		for _, in := range d.inputs {
			f.uses[in] = append(f.uses[in], place)
			place++
		}
	}
	f.first = append(f.first, place)
	return f
}

// of returns the factor of an input at a place. The places before done are.
func (f *factors) of(in *calibration.Input, done, place int) (*calibration.Factor, error) {
	f.lock.Lock()
	for other := range f.known {
		if other != in && !slices.ContainsFunc(f.uses[other], func(i int) bool { return done <= i && i <= place+heldPlaces }) {
			delete(f.known, other)
		}
	}
	one := f.known[in]
	if one == nil {
		one = &inputFactor{sync.OnceValues(func() (*calibration.Factor, error) {
			f.make.Lock()
			defer f.make.Unlock()
			return in.Factor(1)
		})}
		f.known[in] = one
	}
	f.lock.Unlock()
	factor, err := one.make()
	if err != nil {
		return nil, fmt.Errorf("the input of %s: %w", in.Modules[0], err)
	}
	return factor, nil
}

// factor returns the factor of the input of a tile.
func (r *run) factor(t checkpoint.Tile) (*calibration.Factor, error) {
	place := func(t checkpoint.Tile) int {
		at := r.factors.first[min(t.Weight, len(r.factors.first)-1)]
		if t.Weight < len(r.plan.decisions) {
			if n := r.plan.decisions[t.Weight].inputRows(); n > 0 {
				at += t.From / n
			}
		}
		return at
	}
	r.lock.Lock()
	done := place(r.frontier)
	r.lock.Unlock()
	return r.factors.of(r.plan.decisions[t.Weight].input(t), done, place(t))
}

// dampings returns a warning for each damping of factors that is above the default, by the number of weights.
func (r *run) dampings() (warnings []string) {
	counts := map[float64]int{}
	for _, s := range r.sums {
		if s.damping > calibration.DefaultDamping {
			counts[s.damping]++
		}
	}
	for _, damping := range slices.Sorted(maps.Keys(counts)) {
		warnings = append(warnings, fmt.Sprintf("method %s used damping %g (%g is usual) in %d of %d weights, because the columns of "+
			"their inputs are nearly dependent: calibrate on a longer text", r.plan.method, damping, calibration.DefaultDamping, counts[damping],
			r.plan.Count(Quantize)))
	}
	return warnings
}

// MethodBytes returns the memory that the method of the plan needs at most, besides tiles: the factors that are held while another
// is made of a triangle of H, its bytes and a matrix of float64, or is aimed by the drift, its bytes, two products and their operands.
func (p *Plan) MethodBytes() (most int64) {
	if p.method != calibration.Solve {
		return 0
	}
	var places []*calibration.Input
	for _, d := range p.decisions {
		places = append(places, d.inputs...)
	}
	for i := range places {
		held, largest := int64(0), int64(0)
		near := places[max(0, i-heldPlaces):min(len(places), i+heldPlaces+1)]
		for j, in := range near {
			n := int64(in.Width()) * int64(in.Width())
			own, making := 4*n, 12*n
			switch {
			case in.HasDrift():
				own, making = 8*n, 28*n
			case in.Solved(): // it may aim
				own = 8 * n
			}
			if !slices.Contains(near[:j], in) {
				held += own
			}
			largest = max(largest, making)
		}
		most = max(most, held+largest)
	}
	return most
}

// MethodSeconds predicts the time that the method of the plan takes on a number of threads, besides reading and writing. It
// measures the pace of this machine.
func (p *Plan) MethodSeconds(threads int) (seconds float64, err error) {
	first := slices.IndexFunc(p.decisions, func(d decision) bool { return d.inputs != nil })
	if first < 0 {
		return 0, nil
	}
	pace, err := p.method.MeasurePace(*p.decisions[first].quantizer)
	if err != nil {
		return 0, err
	}
	seen := map[*calibration.Input]bool{}
	for i, d := range p.decisions {
		if d.inputs == nil || !p.mine(i) {
			continue
		}
		aims := false
		for _, in := range d.inputs {
			aims = aims || in.HasDrift()
			if !seen[in] && !in.Solved() {
				seconds += pace.Input(in.Width(), in.HasDrift())
			}
			seen[in] = true
		}
		rows, cols := d.Matrix()
		seconds += pace.Weight(rows, cols, aims)
	}
	return seconds / float64(parallel.Threads(threads)), nil
}

// rounded quantizes the values of a tile, raw or x, with q, by the method of the plan. It returns the damping of the factor; 0
// without one.
func (b *batch) rounded(t checkpoint.Tile, q quant.Quantizer, raw tensor.BF16, x tensor.Dense, with quant.With) (damping float64,
	err error) {
	switch {
	case b.d.inputs != nil && b.run.plan.method == calibration.Solve:
		if b.d.readsBF16() {
			x = raw.Dense()
		}
		f, err := b.run.factor(t)
		if err != nil {
			return 0, err
		}
		_, err = calibration.GPTQ(q, x, with, f)
		return f.Damping, err
	case b.d.readsBF16():
		_, err = q.RowwiseBF16(raw, with)
	default:
		_, err = q.Rowwise(x, with)
	}
	return 0, err
}

// moments returns the mean squares and the means of the inputs of the columns of a tile; nil where they are not known.
func (d decision) moments(t checkpoint.Tile) (squares, means []float32) {
	in := d.input(t)
	if in == nil {
		return nil, nil
	}
	if in.Mean != nil {
		means = in.Mean[t.FromCol:t.ToCol]
	}
	return in.Square[t.FromCol:t.ToCol], means
}
