package convert

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/parallel"
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

// Run carries the plan out and returns the error of every weight against the
// source, in the order of the plan. The result appears at dst only when it is
// whole; when Run fails, nothing is left there. A source with NaN or Inf is
// refused unless that is allowed.
func (p *Plan) Run(ctx context.Context, dst string, o RunOptions) ([]verify.Tensor, error) {
	out, err := newOutput(dst, p.Source.Source, o.Force)
	if err != nil {
		return nil, err
	}
	results, err := p.write(ctx, out, o)
	if err == nil {
		err = out.commit()
	}
	if err != nil {
		out.abort()
		return nil, explain(err, dst, p.Bytes())
	}
	return results, nil
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
	r := &run{plan: p, options: o, writers: map[string]*safetensors.Writer{}}
	for _, f := range p.Files {
		w, err := out.create(f)
		if err != nil {
			return nil, err
		}
		r.writers[f.Name] = w
	}
	if err := p.writeOthers(out); err != nil {
		return nil, err
	}
	if p.Format.NeedsAmax() {
		if err := r.sweep(ctx); err != nil {
			return nil, err
		}
	}
	tiles, err := r.convert(ctx)
	if err != nil {
		return nil, err
	}
	results := r.results(tiles)
	if !o.AllowNonFinite {
		return results, refuseNonFinite(p.Source.Source.Path, results)
	}
	return results, nil
}

// writeOthers writes what is not weights.
func (p *Plan) writeOthers(out *output) error {
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
		if err := out.carry(other); err != nil {
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
	amax    map[string]float32 // of the sibling group; where the format needs it
}

// A tile is some rows of a weight, and what was learned of them.
type tile struct {
	decision int
	from, to int
	amax     float32
	sums     *measure.Accumulator
	err      error
}

// tiles cuts the weights for which take is true into tiles.
func (r *run) tiles(take func(Decision) bool) []tile {
	var tiles []tile
	for i, d := range r.plan.Decisions {
		rows, cols := d.Weight.Matrix()
		if !take(d) || rows*cols == 0 {
			continue
		}
		n := d.Weight.TileRows(d.Weight.Format, r.plan.Format)
		for from := 0; from < rows; from += n {
			tiles = append(tiles, tile{decision: i, from: from, to: min(from+n, rows)})
		}
	}
	return tiles
}

// each calls work for every tile on all threads, and returns the first error in
// the order of the tiles. After an error no more tiles are begun.
func (r *run) each(ctx context.Context, tiles []tile, work func(*tile, Decision) error) error {
	var failed atomic.Bool
	parallel.For(len(tiles), 1, r.options.Threads, func(from, to int) {
		for i := from; i < to && !failed.Load(); i++ {
			t := &tiles[i]
			d := r.plan.Decisions[t.decision]
			if t.err = ctx.Err(); t.err == nil {
				t.err = work(t, d)
			}
			if t.err != nil {
				failed.Store(true)
			}
			r.options.Progress(d.Weight.TileBytes(t.from, t.to))
		}
	})
	for _, t := range tiles {
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// sweep finds the amax of every weight that is quantized, siblings together.
func (r *run) sweep(ctx context.Context) error {
	tiles := r.tiles(func(d Decision) bool { return d.Action == Quantize })
	err := r.each(ctx, tiles, func(t *tile, d Decision) error {
		x, err := d.Weight.Read(t.from, t.to)
		t.amax = quant.Amax(x, 1)
		return err
	})
	r.amax = map[string]float32{}
	for _, t := range tiles {
		group := r.group(r.plan.Decisions[t.decision])
		r.amax[group] = max(r.amax[group], t.amax)
	}
	return err
}

// group returns the name under which the amax of a weight is kept.
func (r *run) group(d Decision) string {
	if r.plan.Format.Global {
		return siblingGroup(d.Weight.Name)
	}
	return d.Weight.Name
}

// convert does the work of the plan.
func (r *run) convert(ctx context.Context) ([]tile, error) {
	tiles := r.tiles(func(Decision) bool { return true })
	actions := map[Action]func(*tile, Decision) error{Copy: r.copy, Quantize: r.quantize, Decode: r.decode}
	return tiles, r.each(ctx, tiles, func(t *tile, d Decision) error { return actions[d.Action](t, d) })
}

// copy writes rows as they are, and measures that they are finite.
func (r *run) copy(t *tile, d Decision) error {
	raw, err := d.Weight.ReadBytes(t.from, t.to)
	if err != nil {
		return err
	}
	if f, ok := checkpoint.DenseFormat(d.Weight.Dtype); ok {
		x := make([]float32, len(raw)/(f.Bits()/8))
		if err := tensor.FromBytes(x, raw, f); err != nil {
			return err
		}
		t.sums = measure.New(verify.BlockLength)
		t.sums.Add(x, x)
	}
	return r.put(d, d.Stored[0].Name, raw, d.Weight.TileBytes(0, t.from))
}

// quantize writes the codes and scales of rows.
func (r *run) quantize(t *tile, d Decision) error {
	x, err := d.Weight.Read(t.from, t.to)
	if err != nil {
		return err
	}
	with := quant.With{FirstRow: t.from, Threads: 1}
	if r.plan.Format.NeedsAmax() {
		amax := r.amax[r.group(d)]
		with.Amax = &amax
	}
	q, err := r.plan.Quantizer.Rowwise(x, with)
	if err != nil {
		return err
	}
	t.sums = measure.New(verify.BlockLength)
	verify.Tile(t.sums, x, q)
	for _, s := range d.Stored {
		var part []byte
		var off int64
		switch s.Part {
		case checkpoint.Codes:
			part, off = q.Codes, int64(t.from*q.LineBytes())
		case checkpoint.Scales:
			part, off = q.ScaleBytes(), r.scaleOffset(q, t.from)
		case checkpoint.Global:
			part = checkpoint.GlobalBytes(r.plan.Convention.StoredGlobal(r.plan.Format, q.Global))
		}
		if whole := s.Part == checkpoint.Global || s.Part == checkpoint.Scales && r.plan.Format.PerTensor(); whole && t.from > 0 {
			continue // the first tile wrote it
		}
		if err := r.put(d, s.Name, part, off); err != nil {
			return err
		}
	}
	return nil
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
func (r *run) decode(t *tile, d Decision) error {
	x, err := d.Weight.Read(t.from, t.to)
	if err != nil {
		return err
	}
	spec := d.Stored[0].Spec
	f, ok := checkpoint.DenseFormat(spec.Dtype)
	if !ok {
		return fmt.Errorf("weights are decoded to BF16, F16 or F32, not %s", spec.Dtype)
	}
	size := f.Bits() / 8
	raw := make([]byte, len(x.Data)*size)
	if err := tensor.ToBytes(raw, x.Data, f); err != nil {
		return err
	}
	t.sums = measure.New(verify.BlockLength)
	if f == format.F32 {
		t.sums.Add(x.Data, x.Data)
	} else {
		back := make([]float32, len(x.Data))
		if err := tensor.FromBytes(back, raw, f); err != nil {
			return err
		}
		t.sums.Add(x.Data, back)
	}
	return r.put(d, spec.Name, raw, int64(t.from*x.Cols*size))
}

func (r *run) put(d Decision, name string, p []byte, off int64) error {
	return r.writers[d.File].WriteTensorAt(name, p, off)
}

// results merges the sums of the tiles, in their order.
func (r *run) results(tiles []tile) []verify.Tensor {
	results := make([]verify.Tensor, len(r.plan.Decisions))
	sums := make([]*measure.Accumulator, len(results))
	for i := range sums {
		sums[i] = measure.New(verify.BlockLength)
	}
	for _, t := range tiles {
		if t.sums != nil {
			sums[t.decision].Merge(t.sums)
		}
	}
	for i, d := range r.plan.Decisions {
		rows, cols := d.Weight.Matrix()
		name := d.Weight.FormatName()
		switch d.Action {
		case Quantize:
			name = r.plan.Format.Name
		case Decode:
			name = strings.ToLower(d.Stored[0].Dtype.String())
		}
		results[i] = verify.Tensor{Name: d.Weight.Name, Format: name, Rows: rows, Cols: cols, Result: sums[i].Result()}
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
