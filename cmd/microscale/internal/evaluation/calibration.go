package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/budget"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// A Calibration computes the amax of the input of each linear layer over a text, for the stored
// scales of activations.
type Calibration struct {
	Evaluation        // of Model on Text; it compares nothing
	Out        string // a new file: statistics if its name ends in .safetensors, an importance matrix if in .gguf, else amaxes (JSON or TOML)
	Cache      bool   // also keys and values; not in statistics
	Hessian    bool   // in statistics, also the products of the columns of each input
	Follow     *Following

	// Activations are, with Hessian, formats to which clients quantize the inputs of modules, by the names of both: the statistics are of
	// quantized inputs. A linear layer whose modules differ has the input as it is.
	Activations map[string]string

	Keep  bool     // other statistics of the name Out are an error of [Calibration.Statistics], which wraps ErrOtherRun
	Needs []string // modules whose inputs must be in the statistics: one without is an error before the text is read
}

// ErrOtherRun is in the error of a file of another model, text, options or program than those that are asked for.
var ErrOtherRun = errors.New("an interrupted run had another")

// otherRun returns the error of a file with one key where another is wanted, both of digestOf: it names what differs.
func otherRun(got, want string) error {
	a, b := strings.Split(got, ", "), strings.Split(want, ", ")
	names := map[string]bool{}
	for _, part := range slices.Concat(a, b) {
		if end := strings.LastIndex(part, " "); end > 0 && slices.Contains(a, part) != slices.Contains(b, part) {
			names[part[:end]] = true
		}
	}
	return fmt.Errorf("%w %s", ErrOtherRun, strings.Join(slices.Sorted(maps.Keys(names)), " and another "))
}

// Following makes statistics those of inputs that quantized layers give, with Calibration.Hessian, for calibration.Solve.
type Following struct {
	Formats    map[string]string          // by weight that is quantized
	Quantizers map[string]quant.Quantizer // by format
}

// IsStatistics reports whether a file to write has statistics, by the end of its name.
func IsStatistics(path string) bool { return strings.EqualFold(filepath.Ext(path), ".safetensors") }

// Creatable returns an error if statistics cannot be written to a new file.
func Creatable(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return creatable("the calibration", path)
}

// Renewable returns an error if statistics cannot be written to a file, in place of others: it holds something else, or is the input of
// the run, or no file can be created in its directory.
func Renewable(path, input string) error {
	info, err := os.Stat(path)
	if err != nil {
		return Creatable(path)
	}
	s, err := calibration.Read(path)
	if err == nil {
		err = s.Close()
	}
	of, failed := os.Stat(input)
	if err != nil || failed == nil && os.SameFile(info, of) {
		return exists(path)
	}
	return creatable("the calibration", path)
}

// Run reads the text, and writes the file.
func (c Calibration) Run(ctx context.Context) (*Evaluated, error) {
	c.admit = func() error { // before the work
		if _, err := os.Lstat(c.Out); err == nil && IsStatistics(c.Out) && c.Stream != "" && (&windows.Stream{Dir: c.Stream}).Begun() {
			return nil // perhaps of a run that was killed before it removed its other files
		}
		return Creatable(c.Out)
	}
	if IsImportance(c.Out) {
		return c.runImportance(ctx)
	}
	if IsStatistics(c.Out) {
		c.inputs = &calibration.Collector{Dir: c.Stream, Out: c.Out, Hessian: c.Hessian, Threads: c.Threads}
		c.known = func(key string) (bool, error) {
			_, err := os.Lstat(c.Out)
			if same := err == nil && calibration.KeyOf(c.Out) == key; same || err != nil {
				return same, nil
			}
			return false, exists(c.Out)
		}
		r, err := c.Evaluation.Run(ctx)
		if errors.Is(err, fs.ErrExist) { // another program was faster
			err = exists(c.Out)
		}
		return r, err
	}
	result, r, err := c.Compute(ctx)
	if err != nil {
		return nil, err
	}
	err = result.Write(c.Out)
	if errors.Is(err, fs.ErrExist) { // another program was faster
		err = exists(c.Out)
	}
	return r, err
}

// Key returns a digest of what the statistics follow from: the model, the tokens of the text, the options and this program. It is the
// same for any number of ranks, of which only the caller computes it.
func (c Calibration) Key(ctx context.Context) (string, error) {
	c.Ranks = nil
	c.inputs, c.onlyKey = &calibration.Collector{Out: c.Out, Hessian: c.Hessian}, true
	c.follow()
	c.lower()
	_, err := c.Evaluation.Run(ctx)
	return c.inputs.Key, err
}

// Statistics returns the statistics of Out, which a run with the same Key has left there, or reads the text, and that Key. Another file
// of this name is replaced, unless Keep is set. The caller closes the statistics, which are nil on all ranks but the first.
func (c Calibration) Statistics(ctx context.Context) (s *calibration.Statistics, key string, err error) {
	c.inputs = &calibration.Collector{Dir: c.Stream, Out: c.Out, Hessian: c.Hessian, Threads: c.Threads, Replace: true}
	c.follow()
	c.lower()
	c.needs, c.known = c.Needs, func(key string) (bool, error) {
		got := calibration.KeyOf(c.Out)
		if c.Keep && got != "" && got != key {
			return false, otherRun(got, key)
		}
		return got == key, nil
	}
	if _, err := c.Evaluation.Run(ctx); err != nil {
		return nil, "", err
	}
	if c.first() {
		s, err = calibration.Read(c.Out)
	}
	return s, c.inputs.Key, err
}

// follow makes the statistics follow the quantized layers, if they are to.
func (c *Calibration) follow() {
	f := c.Follow
	if f == nil {
		return
	}
	b := &Budget{Quantizers: f.Quantizers, Codes: calibration.Solve, Groups: groupsOf(f.Formats)}
	for _, g := range b.Groups {
		c.Formats = append(c.Formats, f.Quantizers[g.Options[0].Format].Format)
	}
	c.inputs.Pairs, c.what = true, fmt.Sprintf("behind quantized layers: %v, %v", b.Groups, f.Quantizers)
	c.variants = func(model *stack) ([]windows.Stack, error) {
		err := b.find(model)
		format := func(group int) string { return b.Groups[group].Options[0].Format }
		return []windows.Stack{&follower{variant{stack: model, budget: b, format: format, method: b.Codes}, c.inputs}}, err
	}
}

// groupsOf returns a group for each format that weights have by their names.
func groupsOf(formats map[string]string) (groups []budget.Group) {
	weights := map[string][]string{} // by format
	for weight, format := range formats {
		weights[format] = append(weights[format], weight)
	}
	for _, format := range slices.Sorted(maps.Keys(weights)) {
		slices.Sort(weights[format])
		groups = append(groups, budget.Group{Weights: weights[format], Options: []budget.Option{{Format: format}}})
	}
	return groups
}

// lower makes the statistics those of quantized inputs, if clients quantize them.
func (c *Calibration) lower() {
	if len(c.Activations) == 0 {
		return
	}
	c.what += fmt.Sprintf("inputs in formats: %v", c.Activations)
	c.inputFormats = c.Activations
}

// A follower is a model whose layers are quantized by the statistics of their inputs behind those before.
type follower struct {
	variant
	inputs *calibration.Collector
}

// Layer returns layer i, the statistics of which are finished.
func (f *follower) Layer(ctx context.Context, i int, original windows.Layer) (windows.Layer, error) {
	s, err := f.inputs.Layer(ctx, i)
	if err != nil {
		return nil, err
	}
	f.budget.Statistics = s
	l, err := f.variant.Layer(ctx, i, original)
	return l, errors.Join(err, s.Close())
}

// Compute reads the text, and returns the amaxes.
func (c Calibration) Compute(ctx context.Context) (*convert.Calibration, *Evaluated, error) {
	c.amaxes = windows.NewAmaxes()
	r, err := c.Evaluation.Run(ctx)
	if err != nil {
		return nil, nil, err
	}
	result, err := r.calibration(c.Cache)
	return result, r, err
}

// lacking returns an error if a module that is needed is none of the linear layers.
func lacking(linears [][]calibration.Linear, needs []string) error {
	known := map[string]bool{}
	for _, layer := range linears {
		for _, l := range layer {
			for _, module := range l.Modules {
				known[module] = true
			}
		}
	}
	for _, module := range needs {
		if !known[module] {
			return fmt.Errorf("%s is no linear layer of the decoder, of whose inputs a text has statistics: leave it unquantized, or quantize "+
				"without --text", module)
		}
	}
	return nil
}

// exists returns the error for a file at path, which no calibration replaces.
func exists(path string) error {
	return fmt.Errorf("write the calibration: %s exists: name another file, or remove it", show.Printable(path))
}

// calibration returns the amaxes by the modules of a checkpoint. Modules that share their input have one each. An expert
// that no token reached has that of the others.
func (r *Evaluated) calibration(cache bool) (*convert.Calibration, error) {
	out := &convert.Calibration{Input: map[string]float64{}, OfAll: true}
	for _, layer := range r.linears {
		kinds := map[string]float64{}
		for _, l := range layer {
			kinds[l.Kind] = max(kinds[l.Kind], r.amaxes.Input[l.Name])
		}
		for _, l := range layer {
			amax := r.amaxes.Input[l.Name]
			if amax == 0 && l.Kind != "" {
				amax = kinds[l.Kind]
			}
			for _, module := range l.Modules {
				out.Input[module] = amax
			}
		}
	}
	if cache {
		out.Key, out.Value = map[string]float64{}, map[string]float64{}
		for attention, amax := range r.amaxes.Key {
			module := r.stored(attention)
			out.Key[module+".k_proj"] = amax
			out.Value[module+".v_proj"] = r.amaxes.Value[attention]
		}
	}
	for _, list := range []struct {
		what   string
		amaxes map[string]float64
	}{{"input of", out.Input}, {"keys of", out.Key}, {"values of", out.Value}} {
		for _, module := range slices.Sorted(maps.Keys(list.amaxes)) {
			if amax := list.amaxes[module]; !(amax > 0) || math.IsInf(amax, 0) {
				return nil, fmt.Errorf("calibrate: the amax of the %s %s is %g, want a positive finite number", list.what, module, amax)
			}
		}
	}
	return out, nil
}

// PrintCalibration prints what was calibrated.
func (r *Evaluated) PrintCalibration(w io.Writer, out string, asJSON bool) error {
	inputs, what := 0, "statistics"
	for _, layer := range r.linears {
		inputs += len(layer)
	}
	if r.inputs == nil {
		what = "amaxes"
	}
	if asJSON {
		return show.PrintJSON(w, map[string]any{"model": r.Model, "out": out, "inputs": inputs, "text": r.document.path,
			"sha256": r.document.digest, "tokens": r.windows * r.Context, "seconds": show.Number(r.earlier + r.seconds)})
	}
	_, err := fmt.Fprintf(w, "%s: the %s of %s over %s of %s, in %s\n", show.Printable(out), what, show.Counted(inputs, "input"),
		show.Counted(r.windows*r.Context, "token"), show.Printable(r.document.path), r.time())
	return err
}

// statistics describes the statistics that an evaluation collects.
func (e *Evaluation) statistics() string {
	switch {
	case e.inputs == nil:
		return "none"
	case e.inputs.Hessian:
		return "products"
	}
	return "squares"
}
