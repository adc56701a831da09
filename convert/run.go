package convert

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// RunOptions say how a plan is carried out. None of them changes the result.
type RunOptions struct {
	Force          bool              // replace a checkpoint at the destination when the result is whole
	AllowNonFinite bool              // go on where the source holds NaN or Inf
	Threads        int               // goroutines; 0: one per processor
	Progress       func(bytes int64) // called as bytes of the source are read (Plan.SourceBytes); may be nil
}

// A Result is what is known of a checkpoint that was written.
type Result struct {
	Tensors  []verify.Tensor // the error of every weight against the source, in the order of the plan
	Warnings []string        // what the user should know or do; the checkpoint is whole
}

// Run carries the plan out. The result appears at dst only when it is whole;
// when Run fails, dst is as it was. A source with NaN or Inf is refused unless
// that is allowed.
func (p *Plan) Run(ctx context.Context, dst string, o RunOptions) (*Result, error) {
	out, err := p.newOutput(dst, o.Force)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if r.Tensors, err = p.write(ctx, out, o); err == nil {
		r.Warnings, err = out.commit()
	}
	if err != nil {
		out.abort()
		return nil, explain(err, dst, p.Bytes())
	}
	return r, nil
}

// explain adds to an error what the user can do about it.
func explain(err error, dst string, size int64) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%s: the disk is full: the result needs %d bytes there; free some or choose another destination (nothing was left behind)", dst, size)
	}
	return err
}

// write fills the output.
func (p *Plan) write(ctx context.Context, out *output, o RunOptions) ([]verify.Tensor, error) {
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	r := newRun(p, o)
	for _, f := range p.Files {
		w, err := out.create(f)
		if err != nil {
			return nil, err
		}
		r.writers[f.Name] = w
	}
	if err := p.writeOthers(ctx, out); err != nil {
		return nil, err
	}
	if err := r.writeKnown(); err != nil {
		return nil, err
	}
	if p.Format.NeedsAmax() && p.Count(Quantize) > 0 {
		if err := r.sweep(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.convert(ctx); err != nil {
		return nil, err
	}
	results := r.results()
	if !o.AllowNonFinite {
		return results, refuseNonFinite(p.Source.Source.Path, results)
	}
	return results, nil
}

// writeOthers writes what is not weights.
func (p *Plan) writeOthers(ctx context.Context, out *output) error {
	if p.config != nil {
		if err := out.writeFile(hf.ConfigName, p.config); err != nil {
			return err
		}
	}
	if p.index != nil {
		if err := out.writeFile(safetensors.IndexName, p.index); err != nil {
			return err
		}
	}
	for _, file := range p.small {
		if err := out.writeFile(file.Name, file.Data); err != nil {
			return err
		}
	}
	for _, other := range p.others() {
		if err := out.carry(ctx, other); err != nil {
			return err
		}
	}
	return nil
}

// writeKnown writes the tensors whose values the plan has.
func (r *run) writeKnown() error {
	for _, d := range r.plan.Decisions {
		for _, s := range d.Stored {
			if s.Value == nil {
				continue
			}
			if err := r.writers[d.File].WriteTensorAt(s.Name, s.Value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// run is one execution of a plan.
type run struct {
	plan    *Plan
	options RunOptions
	writers map[string]*safetensors.Writer
	seen    map[string]extremes    // of the sibling group; where the format needs them
	sums    []*measure.Accumulator // of each decision
}

func newRun(p *Plan, o RunOptions) *run {
	r := &run{plan: p, options: o, writers: map[string]*safetensors.Writer{}, seen: map[string]extremes{}}
	for range p.Decisions {
		r.sums = append(r.sums, measure.New(verify.BlockLength))
	}
	return r
}

// tiling returns the tiles of a weight: of a copy, those of a line of bytes.
func (r *run) tiling(decision int) checkpoint.Tiling {
	d := r.plan.Decisions[decision]
	if d.Action == Copy {
		return d.Weight.Line()
	}
	return d.Weight.Tiling(d.Weight.Format, r.plan.Format)
}

// progress reports the bytes of a tile of the source.
func (r *run) progress(t checkpoint.Tile) {
	r.options.Progress(r.tiling(t.Weight).Share(t, r.plan.Decisions[t.Weight].Weight.StoredBytes()))
}

// extremes are what a quantizer must know of a whole tensor.
type extremes struct {
	amax   float32
	hasNaN bool
}

// sweep finds the extremes of every weight that is quantized, of siblings together
// where they share a global scale.
func (r *run) sweep(ctx context.Context) error {
	job := checkpoint.Job[extremes]{
		Weights: len(r.plan.Decisions),
		Tiling: func(i int) checkpoint.Tiling {
			if r.plan.Decisions[i].Action != Quantize {
				return checkpoint.Tiling{}
			}
			return r.tiling(i)
		},
		Work: func(t checkpoint.Tile) (extremes, error) {
			x, err := r.plan.Decisions[t.Weight].Weight.ReadTile(t)
			return extremes{quant.Amax(x, 1), format.MaxBits(x.Data) > math.Float32bits(float32(math.Inf(1)))}, err
		},
		Done: func(t checkpoint.Tile, e extremes) {
			group := r.group(r.plan.Decisions[t.Weight])
			seen := r.seen[group]
			r.seen[group] = extremes{max(seen.amax, e.amax), seen.hasNaN || e.hasNaN}
			r.progress(t)
		},
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// group returns the name under which the extremes of a weight are kept.
func (r *run) group(d Decision) string {
	if r.plan.Format.Global {
		return siblingGroup(d.Weight.Name)
	}
	return d.Weight.Name
}

// convert does the work of the plan.
func (r *run) convert(ctx context.Context) error {
	actions := map[Action]func(checkpoint.Tile, Decision) (*measure.Accumulator, error){Copy: r.copy, Quantize: r.quantize, Decode: r.decode, Relabel: r.relabel}
	job := checkpoint.Job[*measure.Accumulator]{
		Weights: len(r.plan.Decisions),
		Tiling:  r.tiling,
		Work: func(t checkpoint.Tile) (*measure.Accumulator, error) {
			d := r.plan.Decisions[t.Weight]
			return actions[d.Action](t, d)
		},
		Done: func(t checkpoint.Tile, sums *measure.Accumulator) {
			r.sums[t.Weight].Merge(sums)
			r.progress(t)
		},
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// copy writes elements as they are, and measures that they are finite.
func (r *run) copy(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	sums := measure.New(verify.BlockLength)
	raw, err := d.Weight.ReadBytes(t)
	if err != nil {
		return nil, err
	}
	if f, ok := checkpoint.DenseFormat(d.Weight.Dtype); ok {
		x := make([]float32, t.ToCol-t.FromCol)
		if err := tensor.FromBytes(x, raw, f); err != nil {
			return nil, err
		}
		sums.Add(x, x)
	}
	off := int64(t.FromCol) * int64(d.Weight.Dtype.Bits()) / 8
	return sums, r.writers[d.File].WriteTensorAt(d.Stored[0].Name, raw, off)
}

// quantize writes the codes and scales of a tile, and measures what clients
// will decode of them.
func (r *run) quantize(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	x, err := d.Weight.ReadTile(t)
	if err != nil {
		return nil, err
	}
	with := quant.With{FirstRow: t.From, Threads: 1}
	if r.plan.Format.NeedsAmax() {
		seen := r.seen[r.group(d)]
		with.Amax, with.NaN = &seen.amax, seen.hasNaN
	}
	q, err := r.plan.Quantizer.Rowwise(x, with)
	if err != nil {
		return nil, err
	}
	global := r.plan.Convention.StoredGlobal(r.plan.Quantizer, q)
	sums := measure.New(verify.BlockLength)
	var c verify.Comparer
	c.Tile(sums, x, r.plan.Convention.Decoded(q, global))
	return sums, r.store(t, d, q, global)
}

// store writes the parts of a quantized tile. What the whole tensor has one of
// is written with the first.
func (r *run) store(t checkpoint.Tile, d Decision, q *quant.Tensor, global float32) error {
	f := q.Format
	_, cols := d.Weight.Matrix()
	for _, s := range d.Stored {
		var err error
		switch {
		case s.Value != nil: // it is written already
		case s.Part == checkpoint.Codes:
			err = r.put(d, s.Name, q.Codes, 1, checkpoint.Spans(f, s.Part, cols, t))
		case s.Part == checkpoint.Scales && (t.First() || !f.PerTensor()):
			err = r.put(d, s.Name, q.ScaleBytes(), f.Scale.StoredBits()/8, checkpoint.Spans(f, s.Part, cols, t))
		case s.Part == checkpoint.Global && t.First():
			err = r.writers[d.File].WriteTensorAt(s.Name, checkpoint.GlobalBytes(global), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decode writes the values of a tile in the dtype of the result.
func (r *run) decode(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	x, err := d.Weight.ReadTile(t)
	if err != nil {
		return nil, err
	}
	spec := d.Stored[0].Spec
	f, ok := checkpoint.DenseFormat(spec.Dtype)
	if !ok {
		return nil, fmt.Errorf("weights are decoded to BF16, F16 or F32, not %s", spec.Dtype)
	}
	back := x
	if f != format.F32 {
		back = tensor.New(x.Rows, x.Cols)
		raw := make([]byte, len(x.Data)*f.Bits()/8)
		if err := tensor.ToBytes(raw, x.Data, f); err != nil {
			return nil, err
		}
		if err := tensor.FromBytes(back.Data, raw, f); err != nil {
			return nil, err
		}
	}
	sums := measure.New(verify.BlockLength)
	for i := range x.Rows {
		sums.Add(x.Row(i), back.Row(i))
	}
	return sums, d.Weight.PutDense(t, x, f, func(raw []byte, at int64) error {
		return r.writers[d.File].WriteTensorAt(spec.Name, raw, at)
	})
}

// put writes a part of a tile, of units of size bytes, where it lies.
func (r *run) put(d Decision, name string, part []byte, size int, at iter.Seq[checkpoint.Span]) error {
	for s := range at {
		if err := r.writers[d.File].WriteTensorAt(name, part[s.From*size:s.To*size], s.At*int64(size)); err != nil {
			return err
		}
	}
	return nil
}

// results names the sums.
func (r *run) results() []verify.Tensor {
	results := make([]verify.Tensor, len(r.plan.Decisions))
	for i, d := range r.plan.Decisions {
		rows, cols := d.Weight.Matrix()
		name := d.Weight.FormatName()
		switch d.Action {
		case Quantize:
			name = r.plan.Format.Name
		case Decode:
			name = strings.ToLower(d.Stored[0].Dtype.String())
		}
		results[i] = verify.Tensor{Name: d.Weight.Name, Format: name, Rows: rows, Cols: cols, Result: r.sums[i].Result()}
	}
	return results
}

// refuseNonFinite fails where the source holds NaN or Inf, and says where.
func refuseNonFinite(path string, results []verify.Tensor) error {
	const most = 3
	var named []string
	tensors := 0
	for _, t := range results {
		if t.Result.NonFiniteWant == 0 {
			continue
		}
		if tensors++; tensors <= most {
			named = append(named, fmt.Sprintf("%s (%d of %d values)", t.Name, t.Result.NonFiniteWant, t.Result.Elements))
		}
	}
	if tensors == 0 {
		return nil
	}
	if tensors > most {
		named = append(named, fmt.Sprintf("and %d more tensors", tensors-most))
	}
	return fmt.Errorf("%s: NaN or Inf in %s: the checkpoint is damaged; quantize it all the same with --allow-nonfinite", path, strings.Join(named, ", "))
}
