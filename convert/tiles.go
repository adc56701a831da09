package convert

import (
	"fmt"
	"iter"
	"runtime"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// scratch is the memory of one unit of work, which the next one takes over.
type scratch struct {
	raw       []byte         // of the source
	values    []byte         // of the source, decoded
	written   []checksum.Sum // of the stored tensors of a weight
	read      checksum.Sum   // of its values in the source
	quantized *quant.Tensor
	comparer  verify.Comparer
}

// into returns a tensor of a shape, whose contents are of earlier work.
func (s *scratch) into(f quant.Format, rows, cols int) (*quant.Tensor, error) {
	if q := s.quantized; q != nil && q.Rows() == rows && q.Cols() == cols {
		return q, nil
	}
	var err error
	s.quantized, err = quant.NewTensor(f, rows, cols)
	return s.quantized, err
}

// Tiles are written several at a time, because the system takes half as long over
// large writes as over many that begin and end within a page: about so many bytes,
// and no more tiles than leave each thread some of those that a job has at once.
const (
	writeBytes = 1 << 20
	writeTiles = 32 // of all threads together
)

// units returns how a weight is cut for work: into whole tiles, several where they
// lie one after the other in the result.
func (r *run) units(decision int) checkpoint.Tiling {
	t, d := r.tiling(decision), r.plan.Decisions[decision]
	threads := r.options.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	tiles := func(bytes int64) int { return int(max(1, min(writeBytes/max(1, bytes), int64(writeTiles/threads)))) }
	switch {
	case d.Action == Copy:
		t.TileCols *= tiles(d.Weight.LineBytes(t.TileCols))
	case d.Action != Decode && t.TileCols >= t.Cols:
		t.TileRows *= tiles(int64(t.TileRows) * int64(t.TileCols) * int64(r.plan.Format.Element.StoredBits()) / 8)
	}
	return t
}

// work does a unit: its part of the result is written, the errors of its tiles are
// returned.
func (r *run) work(t checkpoint.Tile) ([]sums, error) {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	d := r.plan.Decisions[t.Weight]
	s.startSums(r, d)
	all := []sums{{}}
	var err error
	switch d.Action {
	case Quantize:
		all, err = r.quantize(t, d, s)
	case Decode:
		all[0], err = r.decode(t, d, s)
	case Relabel:
		all[0].stored, err = r.relabel(t, d, s)
	default:
		all[0], err = r.copy(t, d, s)
	}
	if err == nil && len(all) > 0 {
		s.endSums(all)
	}
	return all, err
}

// copy writes elements as they are, and counts those that are not finite.
func (r *run) copy(t checkpoint.Tile, d Decision, s *scratch) (sums, error) {
	var err error
	if s.raw, err = d.Weight.ReadBytes(t, s.raw); err != nil {
		return sums{}, err
	}
	errors := measure.New(verify.BlockLength)
	if f, ok := checkpoint.DenseFormat(d.Weight.Dtype); ok {
		errors.AddCopy(t.ToCol-t.FromCol, tensor.CountNonFinite(s.raw, f))
	}
	return sums{stored: errors}, r.put(t, d, checkpoint.Codes, s.raw, s)
}

// quantize writes the codes and scales of the tiles of a unit, and measures what
// clients will decode of each.
func (r *run) quantize(t checkpoint.Tile, d Decision, s *scratch) (all []sums, err error) {
	unit, err := s.into(r.plan.Format, t.To-t.From, t.ToCol-t.FromCol)
	if err != nil {
		return nil, err
	}
	with := quant.With{Threads: 1}
	if r.plan.Format.NeedsAmax() {
		seen := r.seen(t.Weight)
		with.Amax, with.NaN = &seen.amax, seen.hasNaN
	}
	var global float32
	rows := r.tiling(t.Weight).TileRows
	for tile := t; tile.From < t.To; tile.From = tile.To {
		tile.To = min(tile.From+rows, t.To)
		with.FirstRow, with.Into = tile.From, rowsOf(unit, tile.From-t.From, tile.To-t.From)
		var errors sums
		if errors, global, err = r.quantizeTile(tile, d, s, with); err != nil {
			return nil, err
		}
		all = append(all, errors)
	}
	return all, r.store(t, d, unit, global, s)
}

// quantizeTile fills with.Into, and returns its error and the global scale.
func (r *run) quantizeTile(t checkpoint.Tile, d Decision, s *scratch, with quant.With) (errors sums, global float32, err error) {
	raw, x, ok, err := r.readTile(t, d, s)
	if err != nil {
		return sums{}, 0, err
	}
	errorOf := func(q quant.Quantizer) (*measure.Accumulator, error) {
		if ok {
			_, err = q.RowwiseBF16(raw, with)
		} else {
			_, err = q.Rowwise(x, with)
		}
		if err != nil {
			return nil, err
		}
		global = r.plan.Convention.StoredGlobal(q, with.Into)
		decoded, sums := r.plan.Convention.Decoded(with.Into, global), measure.New(verify.BlockLength)
		if ok {
			s.comparer.TileBF16(sums, raw, decoded)
		} else {
			s.comparer.Tile(sums, x, decoded)
		}
		return sums, nil
	}
	if r.plan.Quantizer.Search != quant.NoSearch {
		if errors.nearest, err = errorOf(r.plan.nearest()); err != nil {
			return sums{}, 0, err
		}
	}
	errors.stored, err = errorOf(r.plan.Quantizer)
	return errors, global, err
}

// readTile returns the values of a tile: BF16 as it is where ok, else decoded. It adds
// them to the checksum of what was read.
func (r *run) readTile(t checkpoint.Tile, d Decision, s *scratch) (raw tensor.BF16, x tensor.Dense, ok bool, err error) {
	_, cols := d.Weight.Matrix()
	if d.readsBF16() {
		if raw, ok, err = d.Weight.ReadBF16(t, s.raw); err == nil {
			s.raw = raw.Data
			s.addRead(t, cols, raw.Data)
		}
		return raw, x, ok, err
	}
	if x, err = d.Weight.ReadTile(t); err == nil {
		err = s.addValues(t, cols, x)
	}
	return raw, x, false, err
}

// rowsOf returns rows [from, to) of a rowwise tensor, in its memory. They begin
// where a block does.
func rowsOf(q *quant.Tensor, from, to int) *quant.Tensor {
	rows := *q
	rows.Shape = []int{to - from, q.Cols()}
	n := q.LineBytes()
	rows.Codes = q.Codes[from*n : to*n]
	if q.Format.PerTensor() {
		return &rows
	}
	first, width := q.Format.ScaleShape(from, q.Cols())
	last, _ := q.Format.ScaleShape(to, q.Cols())
	if q.Scales != nil {
		rows.Scales = q.Scales[first*width : last*width]
	}
	if q.Scales32 != nil {
		rows.Scales32 = q.Scales32[first*width : last*width]
	}
	return &rows
}

// store writes the parts of quantized tiles.
func (r *run) store(t checkpoint.Tile, d Decision, q *quant.Tensor, global float32, to *scratch) error {
	err := r.put(t, d, checkpoint.Codes, q.Codes, to)
	if err == nil {
		err = r.put(t, d, checkpoint.Scales, q.ScaleBytes(), to)
	}
	if s, ok := r.plan.Convention.Struct(q.Format); ok && err == nil {
		err = r.put(t, d, checkpoint.Blocks, checkpoint.Interleaved(s, q), to)
	}
	if err == nil {
		err = r.put(t, d, checkpoint.Global, checkpoint.GlobalBytes(global), to)
	}
	return err
}

// decode writes the values of a tile in the dtype of the result.
func (r *run) decode(t checkpoint.Tile, d Decision, s *scratch) (sums, error) {
	_, x, _, err := r.readTile(t, d, s)
	if err != nil {
		return sums{}, err
	}
	spec := d.Stored[0].Spec
	f, ok := checkpoint.DenseFormat(spec.Dtype)
	if !ok {
		return sums{}, fmt.Errorf("weights are decoded to BF16, F16 or F32, not %s", spec.Dtype)
	}
	errors := measure.New(verify.BlockLength)
	if f == format.F32 {
		errors.AddCopy(len(x.Data), nonFinite(x.Data))
	} else {
		raw, back := make([]byte, len(x.Data)*f.Bits()/8), tensor.New(x.Rows, x.Cols)
		if err := tensor.ToBytes(raw, x.Data, f); err != nil {
			return sums{}, err
		}
		if err := tensor.FromBytes(back.Data, raw, f); err != nil {
			return sums{}, err
		}
		for i := range x.Rows {
			errors.Add(x.Row(i), back.Row(i))
		}
	}
	return sums{stored: errors}, d.Weight.PutDense(t, x, f, func(raw []byte, at int64) error {
		return r.scatter(d, spec.Name, raw, at, s)
	})
}

// scatter writes bytes of a stored tensor, each row where the result has it, and adds
// them to its checksum.
func (r *run) scatter(d Decision, name string, raw []byte, at int64, s *scratch) error {
	i := slices.IndexFunc(d.Stored, func(s checkpoint.Stored) bool { return s.Name == name })
	begin, _ := d.Extent(d.Stored[i])
	at += begin
	write := func(p []byte, at int64) error {
		s.written[i].Add(p, at)
		return r.writers[d.File].WriteTensorAt(name, p, at)
	}
	if d.rowBytes == 0 || i > 0 {
		return write(raw, at)
	}
	for len(raw) > 0 {
		row, in := at/d.rowBytes, at%d.rowBytes
		n := min(int64(len(raw)), d.rowBytes-in)
		if err := write(raw[:n], int64(d.row(int(row)))*d.rowBytes+in); err != nil {
			return err
		}
		raw, at = raw[n:], at+n
	}
	return nil
}

// nonFinite returns how many of the values are NaN or Inf.
func nonFinite(values []float32) (n int) {
	for _, v := range values {
		if v-v != 0 {
			n++
		}
	}
	return n
}

// A place is where bytes [from, to) of a part of a tile are stored: at bytes into
// a tensor.
type place struct {
	part     checkpoint.Part
	name     string
	from, to int
	at       int64
}

// places returns where a tile is stored that is not decoded. What the whole tensor
// has one of is stored with the first, and what the plan knows is stored already.
func (r *run) places(t checkpoint.Tile, d Decision) iter.Seq[place] {
	_, cols := d.Weight.Matrix()
	return func(yield func(place) bool) {
		for _, s := range d.Stored {
			if s.Value != nil {
				continue
			}
			spans, size := r.spans(t, d, s, cols)
			for span := range spans {
				if !yield(place{s.Part, s.Name, span.From * size, span.To * size, span.At * int64(size)}) {
					return
				}
			}
		}
	}
}

// spans returns where a tile has its part of a stored tensor, in units of some bytes.
func (r *run) spans(t checkpoint.Tile, d Decision, s checkpoint.Stored, cols int) (spans iter.Seq[checkpoint.Span], size int) {
	f := r.plan.Format
	once := func(yield func(checkpoint.Span) bool) {
		if t.First() {
			yield(checkpoint.Span{To: 1})
		}
	}
	switch {
	case d.Action == Copy:
		from, to := d.Weight.LineBytes(t.FromCol), d.Weight.LineBytes(t.ToCol)
		return func(yield func(checkpoint.Span) bool) { yield(checkpoint.Span{At: from, To: int(to - from)}) }, 1
	case s.Part == checkpoint.Codes:
		return checkpoint.Spans(f, s.Part, cols, t), 1
	case s.Part == checkpoint.Blocks:
		b, _ := r.plan.Convention.Struct(f)
		n := func(col int) int { return col / b.Width() * b.Bytes() }
		return checkpoint.DenseSpans(n(cols), checkpoint.Tile{From: t.From, To: t.To, FromCol: n(t.FromCol), ToCol: n(t.ToCol)}), 1
	case s.Part == checkpoint.Scales && !f.PerTensor():
		return checkpoint.Spans(f, s.Part, cols, t), f.Scale.StoredBits() / 8
	case s.Part == checkpoint.Scales:
		return once, f.Scale.StoredBits() / 8
	}
	return once, len(checkpoint.GlobalBytes(0))
}

// put writes a part of a tile where it lies.
func (r *run) put(t checkpoint.Tile, d Decision, part checkpoint.Part, data []byte, s *scratch) error {
	for p := range r.places(t, d) {
		if p.part != part {
			continue
		}
		if err := r.scatter(d, p.name, data[p.from:p.to], p.at, s); err != nil {
			return err
		}
	}
	return nil
}

// written counts the bytes of a tile that an earlier run wrote.
func (r *run) written(t checkpoint.Tile, d Decision) {
	w, ok := r.writers[d.File].(*safetensors.Writer)
	switch {
	case !ok:
	case d.Action == Decode:
		s := d.Stored[0]
		w.Skip(s.Name, int64(t.To-t.From)*int64(t.ToCol-t.FromCol)*int64(s.Dtype.Bits())/8)
	default:
		for p := range r.places(t, d) {
			w.Skip(p.name, int64(p.to-p.from))
		}
	}
}
