package calibration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Linear is a linear layer of a model.
type Linear struct {
	Name    string   // by which Collector.Add knows it
	Width   int      // columns of its input
	Rows    int      // of its weights, together, for SolvingSeconds alone
	Modules []string // of the checkpoint that hold its weights

	// Activations is the format to which clients quantize the input. With Hessian, products of columns, their mean squares and means are then
	// those of quantized rows, the drift has the error of that, and the amax is rounded up so that the global scale of all rows is a power
	// of two. No scale, or an expert: the input as it is.
	Activations quant.Format

	// Of an expert, which not all tokens reach: a name that the linear layers of this kind of all experts of a layer
	// share, and whether their columns are the same, those of the residual stream. Kind is "" for others.
	Kind   string
	Stream bool
}

// A Collector sums the inputs of the linear layers of a model that reads a text layer by layer. It holds the
// sums of one layer at a time; those of earlier layers are in files of Dir. Sums are in float64, of products
// of at most blockTokens tokens in float32: they depend on how the text is divided into windows, not on Threads, Memory or Ranks.
type Collector struct {
	Dir     string     // of files, one for each layer
	Out     string     // the file of all layers, that Join makes
	Key     string     // of what is read, by which KeyOf knows the file; "": none
	Replace bool       // a file at Out is replaced
	Layers  [][]Linear // that are calibrated, by layer; other inputs are not summed
	Hessian bool       // sum the products of columns with each other: 8·in² bytes
	Pairs   bool       // with Hessian, AddPair is called: 16·in² bytes
	Memory  int64      // bytes of sums, for which the text is read several times for a layer with many experts (Passes); 0: any number
	Threads int        // 0: one per processor

	// Ranks divide the text, each with a Collector: the last has its first windows, and rank 0, which writes the files, the last ones. nil:
	// there is one.
	Ranks *comm.Group

	ranks   *neighbors // nil: none, or not connected
	linears map[string]placed
	pass    int  // of the layer that is read
	begun   bool // the pass has the sums of earlier windows
	layer   map[string]*sums
	pools   map[string]*sums // of all experts, by kind
	free    []*sums          // memory of earlier layers
}

// A placed linear layer is summed in a pass of a layer.
type placed struct {
	Linear
	layer, pass int
}

func (c *Collector) newSums(width int, pairs bool) *sums {
	if i := slices.IndexFunc(c.free, func(s *sums) bool { return len(s.square) == width && (s.drift != nil) == pairs }); i >= 0 {
		s := c.free[i]
		c.free = slices.Delete(c.free, i, i+1)
		s.tokens, s.amax = 0, 0
		clear(s.square)
		clear(s.mean)
		clear(s.peak)
		clear(s.hessian)
		clear(s.drift)
		clear(s.driftSquare)
		return s
	}
	if n := len(c.free); n > 0 {
		c.free = c.free[:n-1] // of a width that this layer may not need: the forecast has room for one layer
	}
	s := &sums{square: make([]float64, width), mean: make([]float64, width), peak: make([]float64, width)}
	if c.Hessian {
		s.hessian = make([]float64, width*width)
	}
	if pairs {
		s.drift, s.driftSquare = make([]float64, width*width), make([]float64, width)
	}
	return s
}

// pairs reports whether the drift of an input is summed.
func (c *Collector) pairs(l Linear) bool {
	return l.Kind == "" && (c.Pairs || c.Hessian && l.Activations.Scaled())
}

// Add adds the rows of x to the input of a linear layer. An element that is not finite is an error.
func (c *Collector) Add(linear string, x tensor.Dense) error { return c.AddPair(linear, x, x) }

// AddPair adds the rows of x, that the quantized layers before give, to the input of a linear layer, and with Pairs their products with
// the rows of the original, less x. For inputs of experts, whose rows are not those of the same tokens, original is x.
func (c *Collector) AddPair(linear string, original, x tensor.Dense) error {
	c.place()
	l, ok := c.linears[linear]
	if !ok || l.pass != c.pass {
		return nil
	}
	if err := c.receive(l.layer); err != nil {
		return err
	}
	s := c.layer[linear]
	if s == nil {
		s = c.newSums(x.Cols, c.pairs(l.Linear))
		c.layer[linear] = s
	}
	if !c.pairs(l.Linear) {
		original = x
	}
	for from := 0; from < x.Rows; from += blockTokens {
		to := min(from+blockTokens, x.Rows)
		rows := x.View(from, to, 0, x.Cols)
		low := rows
		if c.pairs(l.Linear) && l.Activations.Scaled() {
			var err error
			if low, err = quantizedRows(l.Activations, rows, c.Threads); err != nil {
				return fmt.Errorf("calibrate: the input of %s: %w", linear, err)
			}
		}
		if err := s.add(original.View(from, to, 0, x.Cols), rows, low, c.Threads); err != nil {
			return fmt.Errorf("calibrate: the input of %s: %w", linear, err)
		}
	}
	return nil
}

// place finds the passes of linear layers.
func (c *Collector) place() {
	if c.linears != nil {
		return
	}
	c.linears, c.layer = map[string]placed{}, map[string]*sums{}
	for i := range c.Layers {
		for pass, group := range c.groups(i) {
			for _, l := range group {
				c.linears[l.Name] = placed{l, i, pass}
			}
		}
	}
}

// Finish ends a pass over the text for a layer. After the last one it writes the sums of the layer to their file, and forgets them. The
// inputs of experts follow those of all experts of their kind, on which they fall back.
func (c *Collector) Finish(ctx context.Context, layer int) (err error) {
	groups := c.groups(layer)
	c.place()
	if err := c.receive(layer); err != nil { // no token of this rank reached an input
		return err
	}
	c.begun = false
	if c.sends() {
		err := c.send(groups[c.pass])
		c.reuse()
		c.pass = (c.pass + 1) % len(groups)
		return err
	}
	if c.pass == 0 {
		c.pools = map[string]*sums{}
	}
	c.pool(groups[c.pass])
	if c.pass+1 < len(groups) {
		if err := c.keep(ctx, layer, groups[c.pass]); err != nil {
			return err
		}
		c.reuse()
		c.pass++
		return nil
	}
	kept, err := c.kept(layer)
	defer func() { err = errors.Join(err, closeAll(kept)) }()
	if err == nil {
		err = c.finish(ctx, layer, kept)
	}
	if err != nil {
		return err
	}
	c.reuse()
	if c.pass > 0 {
		err = c.removePasses(layer)
	}
	c.pass = 0
	return err
}

// reuse makes the memory of the sums of a pass available to the next one.
func (c *Collector) reuse() {
	c.free = slices.AppendSeq(c.free, maps.Values(c.layer))
	clear(c.layer)
}

// finish writes the file of a layer, of the sums in memory and those that files of earlier passes have.
func (c *Collector) finish(ctx context.Context, layer int, kept []*Statistics) error {
	w, priors := writer{}, map[string]int{}
	for _, l := range c.Layers[layer] {
		prior := -1
		if l.Kind != "" {
			at, ok := priors[l.Kind]
			if !ok {
				all := c.pools[l.Kind]
				if all == nil || all.amax == 0 {
					return fmt.Errorf("calibrate: no token reaches %s and the other experts of its layer: use another text", l.Name)
				}
				if !l.Stream {
					all.flatten()
				}
				at = w.sums(all, headerInput{Tokens: all.tokens, Amax: all.amax, Diagonal: c.Hessian && !l.Stream})
				priors[l.Kind] = at
			}
			prior = at
		}
		if err := c.one(&w, l, prior, kept); err != nil {
			return err
		}
	}
	return w.write(ctx, c.part(layer))
}

// one adds the input of a linear layer to a file. prior is the index of that of all experts; -1: it is none of an expert.
func (c *Collector) one(w *writer, l Linear, prior int, kept []*Statistics) error {
	of := func(h headerInput) headerInput {
		if prior >= 0 {
			h.Prior = &prior
		}
		return h
	}
	for _, s := range kept {
		if in, ok := s.Of(l.Modules[0]); ok {
			w.copied(in, of(in.header))
			return nil
		}
	}
	switch s := c.layer[l.Name]; {
	case s != nil && s.amax > 0:
		w.sums(s, of(headerInput{Modules: l.Modules, Tokens: s.tokens, Amax: c.amax(l, s)}))
	case prior >= 0: // no token, or only zeros
		w.input(of(headerInput{Modules: l.Modules, Amax: w.header.Inputs[prior].Amax}))
	case s == nil:
		return fmt.Errorf("calibrate: the model did not compute %s", l.Name)
	default:
		return fmt.Errorf("calibrate: the input of %s is zero for every token: use another text", l.Name)
	}
	return nil
}

// amax returns the amax of an input for its file.
func (c *Collector) amax(l Linear, s *sums) float64 {
	if c.pairs(l) {
		return roundAmax(l.Activations, s.amax)
	}
	return s.amax
}

// pool adds the sums of experts to those of all experts of their kind.
func (c *Collector) pool(group []Linear) {
	for _, l := range group {
		s := c.layer[l.Name]
		if l.Kind == "" || s == nil {
			continue
		}
		all := c.pools[l.Kind]
		if all == nil {
			all = &sums{square: make([]float64, l.Width), mean: make([]float64, l.Width)}
			if c.Hessian && l.Stream {
				all.hessian = make([]float64, l.Width*l.Width)
			}
			c.pools[l.Kind] = all
		}
		all.tokens += s.tokens
		all.amax = max(all.amax, s.amax)
		addTo(all.square, s.square)
		addTo(all.mean, s.mean)
		if all.hessian != nil {
			addTo(all.hessian, s.hessian)
		}
	}
}

// Bytes returns the memory of the sums of the largest pass while windows of a number of tokens are read, and after them, while the sums
// are written and Layer makes factors: of H, its copies in float64 and float32, the drift, and the operands and results of two products.
func (c *Collector) Bytes(window int) (summing, after int64) {
	for layer, linears := range c.Layers {
		pass, widest, solved, copies := int64(0), 0, int64(0), 3 // of a window: panels, the drift and its panels
		for _, l := range linears {
			n := int64(l.Width) * int64(l.Width)
			if widest, solved = max(widest, l.Width), max(solved, 16*n); c.pairs(l) {
				solved = max(solved, 32*n)
				if l.Activations.Scaled() {
					copies = 4 // quantized rows, too
				}
			}
		}
		for _, group := range c.groups(layer) {
			one := int64(0)
			for _, l := range group {
				one += c.bytes(l)
			}
			pass = max(pass, one)
		}
		rest, largest := c.rest(layer)
		operands := 0
		if c.Hessian {
			operands = 4 * widest * (copies*window + panelColumns)
		}
		summing, after = max(summing, pass+rest+int64(operands)), max(after, pass+rest+largest)
		if c.Pairs {
			after = max(after, solved)
		}
	}
	return summing, after
}

// FileBytes returns the bytes of the statistics. Until they are joined, the files of the layers have as many.
func (c *Collector) FileBytes() (n int64) {
	for _, list := range c.Layers {
		for _, l := range append(slices.Clone(list), pools(list)...) {
			n += 12 * int64(l.Width)
			if c.Hessian {
				n += 4 * int64(triangle(l.Width))
			}
			if c.pairs(l) {
				n += 4 * int64(l.Width) * int64(l.Width)
			}
			if c.Pairs || c.pairs(l) {
				n += 4 * int64(l.Width+1) // squares of the drift, or the order of columns
			}
		}
	}
	return n
}

// Operations returns the multiplications and additions of the sums for a token of all layers, if it reaches all experts.
func (c *Collector) Operations() (n float64) {
	for _, layer := range c.Layers {
		for _, l := range layer {
			if c.Hessian {
				n += 2 * float64(l.Width) * float64(l.Width)
			}
			if c.pairs(l) {
				n += 2 * float64(l.Width) * float64(l.Width)
			}
		}
	}
	return n
}

// part returns the path of the file of a layer.
func (c *Collector) part(layer int) string {
	return filepath.Join(c.Dir, fmt.Sprintf("layer-%05d.safetensors", layer))
}

// Join writes the statistics of all layers to the new file Out, durably. Unless Replace is set, the error is
// fs.ErrExist if it exists. The files of the layers stay. Of several ranks, the first does, and the others have nothing to join.
func (c *Collector) Join(ctx context.Context) (err error) {
	if c.sends() {
		return nil
	}
	var parts []*Statistics
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.Close())
		}
	}()
	w := writer{header: header{Key: c.Key}}
	for layer := range c.Layers {
		p, err := Read(c.part(layer))
		if err != nil {
			return err
		}
		parts = append(parts, p)
		first := len(w.header.Inputs)
		for _, in := range p.all {
			h := in.header
			if h.Prior != nil {
				h.Prior = new(*h.Prior + first)
			}
			w.copied(in, h)
		}
	}
	return w.place(ctx, c.Out, c.Replace)
}

// Held returns the bytes of the files of layers that an interrupted run left.
func (c *Collector) Held() (bytes int64) {
	if c == nil {
		return 0
	}
	for layer := range c.Layers {
		if info, err := os.Lstat(c.part(layer)); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// Remove removes the files of the layers, and what a run that was killed left.
func (c *Collector) Remove() (err error) {
	if c.sends() {
		return nil
	}
	paths := []string{joiningPath(c.Out)}
	for layer := range c.Layers {
		paths = append(paths, c.part(layer), c.solving(layer))
		err = errors.Join(err, c.removePasses(layer))
	}
	for _, path := range paths {
		if removed := os.Remove(path); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}
