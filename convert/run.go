package convert

import (
	"context"
	"errors"
	"fmt"
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
	out, err := newOutput(dst, p.Source.Source, o.Force)
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
	if p.Format.NeedsAmax() {
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
	for _, other := range p.Source.Source.Others() {
		if err := out.carry(ctx, other); err != nil {
			return err
		}
	}
	return nil
}

// run is one execution of a plan.
type run struct {
	plan    *Plan
	options RunOptions
	writers map[string]*safetensors.Writer
	amax    map[string]float32     // of the sibling group; where the format needs it
	sums    []*measure.Accumulator // of each decision
}

func newRun(p *Plan, o RunOptions) *run {
	r := &run{plan: p, options: o, writers: map[string]*safetensors.Writer{}, amax: map[string]float32{}}
	for range p.Decisions {
		r.sums = append(r.sums, measure.New(verify.BlockLength))
	}
	return r
}

// extent returns the rows, the rows of a tile and the columns of a weight.
func (r *run) extent(decision int) (rows, tileRows, cols int) {
	w := r.plan.Decisions[decision].Weight
	rows, cols = w.Matrix()
	if cols == 0 {
		rows = 0
	}
	return rows, w.TileRows(w.Format, r.plan.Format), cols
}

// progress reports the bytes of a tile of the source.
func (r *run) progress(t checkpoint.Tile) {
	r.options.Progress(r.plan.Decisions[t.Weight].Weight.TileBytes(t.From, t.To))
}

// sweep finds the amax of every weight that is quantized, siblings together.
func (r *run) sweep(ctx context.Context) error {
	job := checkpoint.Job[float32]{
		Weights: len(r.plan.Decisions),
		Extent: func(i int) (rows, tileRows, cols int) {
			if r.plan.Decisions[i].Action != Quantize {
				return 0, 0, 0
			}
			return r.extent(i)
		},
		Work: func(t checkpoint.Tile) (float32, error) {
			x, err := r.plan.Decisions[t.Weight].Weight.Read(t.From, t.To)
			return quant.Amax(x, 1), err
		},
		Done: func(t checkpoint.Tile, amax float32) {
			group := r.group(r.plan.Decisions[t.Weight])
			r.amax[group] = max(r.amax[group], amax)
			r.progress(t)
		},
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// group returns the name under which the amax of a weight is kept.
func (r *run) group(d Decision) string {
	if r.plan.Format.Global {
		return siblingGroup(d.Weight.Name)
	}
	return d.Weight.Name
}

// convert does the work of the plan.
func (r *run) convert(ctx context.Context) error {
	actions := map[Action]func(checkpoint.Tile, Decision) (*measure.Accumulator, error){Copy: r.copy, Quantize: r.quantize, Decode: r.decode}
	job := checkpoint.Job[*measure.Accumulator]{
		Weights: len(r.plan.Decisions),
		Extent:  r.extent,
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

// copy writes rows as they are, and measures that they are finite.
func (r *run) copy(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	sums := measure.New(verify.BlockLength)
	raw, err := d.Weight.ReadBytes(t.From, t.To)
	if err != nil {
		return nil, err
	}
	if f, ok := checkpoint.DenseFormat(d.Weight.Dtype); ok {
		x := make([]float32, len(raw)/(f.Bits()/8))
		if err := tensor.FromBytes(x, raw, f); err != nil {
			return nil, err
		}
		sums.Add(x, x)
	}
	return sums, r.put(d, d.Stored[0].Name, raw, d.Weight.TileBytes(0, t.From))
}

// quantize writes the codes and scales of rows.
func (r *run) quantize(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	x, err := d.Weight.Read(t.From, t.To)
	if err != nil {
		return nil, err
	}
	with := quant.With{FirstRow: t.From, Threads: 1}
	if r.plan.Format.NeedsAmax() {
		amax := r.amax[r.group(d)]
		with.Amax = &amax
	}
	q, err := r.plan.Quantizer.Rowwise(x, with)
	if err != nil {
		return nil, err
	}
	sums := measure.New(verify.BlockLength)
	verify.Tile(sums, x, q)
	for _, s := range d.Stored {
		var part []byte
		var off int64
		switch s.Part {
		case checkpoint.Codes:
			part, off = q.Codes, int64(t.From*q.LineBytes())
		case checkpoint.Scales:
			part, off = q.ScaleBytes(), r.scaleOffset(q, t.From)
		case checkpoint.Global:
			part = checkpoint.GlobalBytes(r.plan.Convention.StoredGlobal(r.plan.Format, q.Global))
		}
		if whole := s.Part == checkpoint.Global || s.Part == checkpoint.Scales && r.plan.Format.PerTensor(); whole && t.From > 0 {
			continue // the first tile wrote it
		}
		if err := r.put(d, s.Name, part, off); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// scaleOffset returns where the scales of a tile begin in their tensor.
func (r *run) scaleOffset(q *quant.Tensor, firstRow int) int64 {
	rows, cols := q.ScaleShape()
	if rows == 0 || r.plan.Format.PerTensor() {
		return 0
	}
	return int64(firstRow / r.plan.Format.Block.Rows * cols * r.plan.Format.Scale.StoredBits() / 8)
}

// decode writes the values of rows in the dtype of the result.
func (r *run) decode(t checkpoint.Tile, d Decision) (*measure.Accumulator, error) {
	x, err := d.Weight.Read(t.From, t.To)
	if err != nil {
		return nil, err
	}
	spec := d.Stored[0].Spec
	f, ok := checkpoint.DenseFormat(spec.Dtype)
	if !ok {
		return nil, fmt.Errorf("weights are decoded to BF16, F16 or F32, not %s", spec.Dtype)
	}
	size := f.Bits() / 8
	raw := make([]byte, len(x.Data)*size)
	if err := tensor.ToBytes(raw, x.Data, f); err != nil {
		return nil, err
	}
	back := x.Data
	if f != format.F32 {
		back = make([]float32, len(x.Data))
		if err := tensor.FromBytes(back, raw, f); err != nil {
			return nil, err
		}
	}
	sums := measure.New(verify.BlockLength)
	sums.Add(x.Data, back)
	return sums, r.put(d, spec.Name, raw, int64(t.From*x.Cols*size))
}

func (r *run) put(d Decision, name string, p []byte, off int64) error {
	return r.writers[d.File].WriteTensorAt(name, p, off)
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
