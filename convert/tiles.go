package convert

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/tensor"
)

// A batch is one tile of a weight, or several contiguous tiles, which are converted together. The next
// batch reuses its scratch memory.
type batch struct {
	run  *run
	d    decision
	tile checkpoint.Tile

	written []checksum.Sum // checksums of the stored tensors of the weight
	read    checksum.Sum   // checksum of its values in the source

	raw      []byte // bytes of the source
	values   []byte // values of the source as FP32 bytes
	structs  []byte // codes and scales of the result
	rows     []byte // rows in the order of the result
	codes    *quant.Tensor
	comparer checkpoint.Comparer
}

// Several tiles are written at a time, because many small writes that begin and end within a
// page take the system twice as long: about writeBytes, and few enough tiles that each thread
// has work.
const (
	writeBytes = 1 << 20
	writeTiles = 32 // of all threads together
)

// batches returns how a weight is divided into batches: whole tiles, several if they are contiguous
// in the result.
func (r *run) batches(i int) checkpoint.Tiling {
	t, d := r.tiling(i), r.plan.decisions[i]
	threads := parallel.Threads(r.options.Threads)
	tiles := func(bytes int64) int { return int(max(1, min(writeBytes/max(1, bytes), int64(writeTiles/threads)))) }
	switch {
	case d.action == Copy:
		t.TileCols *= tiles(d.FlatBytes(t.TileCols))
	case d.action != Decode && t.TileCols >= t.Cols:
		t.TileRows *= tiles(int64(t.TileRows) * int64(t.TileCols) * int64(r.plan.formatOf(d).Element.StoredBits()) / 8)
	}
	return t
}

// begin returns a batch with new checksums. Return it to r.scratch.
func (r *run) begin(t checkpoint.Tile) *batch {
	b := r.scratch.Get().(*batch)
	b.run, b.d, b.tile = r, r.plan.decisions[t.Weight], t
	b.startSums()
	return b
}

// work converts a batch and writes its part of the result. It returns the errors of its tiles;
// those of the first tile have the checksums of the batch.
func (r *run) work(t checkpoint.Tile) (all []sums, err error) {
	b := r.begin(t)
	defer r.scratch.Put(b)
	switch b.d.action {
	case Quantize:
		all, err = b.quantize()
	case Decode:
		all, err = b.decode()
	case Relabel:
		all, err = b.relabel()
	default:
		all, err = b.copy()
	}
	if err == nil && len(all) > 0 {
		b.endSums(&all[0])
	}
	return all, err
}

// tiles returns the tiles of the batch. One has the rows of one expert at most if their inputs differ.
func (b *batch) tiles() iter.Seq[checkpoint.Tile] {
	rows := b.run.tiling(b.tile.Weight).TileRows
	return func(yield func(checkpoint.Tile) bool) {
		for t := b.tile; t.From < b.tile.To; t.From = t.To {
			t.To = min(t.From+rows, b.tile.To)
			if n := b.d.inputRows(); n > 0 {
				t.To = min(t.To, (t.From/n+1)*n)
			}
			if !yield(t) {
				return
			}
		}
	}
}

// copy copies elements, and counts NaN and Inf.
func (b *batch) copy() ([]sums, error) {
	var err error
	if b.raw, err = b.d.ReadBytes(b.tile, b.raw); err != nil {
		return nil, err
	}
	if b.d.codes != nil {
		for i, code := range b.raw {
			b.raw[i] = b.d.codes[code]
		}
	}
	errors := measure.New(checkpoint.BlockLength)
	if f, ok := b.d.stored[0].Dtype.Dense(); ok {
		errors.AddCopy(b.tile.ToCol-b.tile.FromCol, countNonFinite(b.raw, f))
	}
	return []sums{{stored: errors}}, b.put(checkpoint.Codes, b.raw)
}

// quantize writes the codes and scales of the batch. It measures the error of the values that
// clients decode.
func (b *batch) quantize() (all []sums, err error) {
	f, t := b.d.quantizer.Format, b.tile
	if e, ok := encoderOf(f); ok {
		return b.encode(e)
	}
	if q := b.codes; q == nil || q.Format.Name != f.Name || q.Rows() != t.To-t.From || q.Cols() != t.ToCol-t.FromCol {
		if b.codes, err = quant.NewTensor(f, t.To-t.From, t.ToCol-t.FromCol); err != nil {
			return nil, err
		}
	}
	with := quant.With{Threads: 1}
	if f.NeedsAmax() {
		seen := b.run.seen(t.Weight)
		with.Amax, with.NaN = &seen.amax, seen.hasNaN
	}
	var global float32
	for tile := range b.tiles() {
		with.FirstRow, with.Into = tile.From, b.codes.ViewRows(tile.From-t.From, tile.To-t.From)
		var errors sums
		if errors, global, err = b.quantizeTile(tile, with); err != nil {
			return nil, err
		}
		all = append(all, errors)
	}
	return all, b.store(b.codes, global)
}

// encode writes the rows of the batch in a type of GGUF files, and measures the error of the decoded values.
func (b *batch) encode(e ggml.Quant) (all []sums, err error) {
	b.structs = b.structs[:0]
	for tile := range b.tiles() {
		raw, x, err := b.readTile(tile)
		if err != nil {
			return nil, err
		}
		if b.d.readsBF16() {
			x = raw.Dense()
		}
		squares, _ := b.d.moments(tile)
		errors, back, size := measure.New(checkpoint.BlockLength), make([]float32, x.Cols), x.Cols/e.Elements*e.Bytes
		for i := range x.Rows {
			at := len(b.structs)
			b.structs = slices.Grow(b.structs, size)[:at+size]
			e.Encode(b.structs[at:], x.Row(i), squares)
			e.Decode(back, b.structs[at:])
			errors.AddRow(measure.Row{Want: x.Row(i), Got: back, Limits: []float32{e.Max()}, Extent: x.Cols})
		}
		all = append(all, sums{stored: errors})
	}
	return all, b.put(checkpoint.Blocks, b.structs)
}

// quantizeTile quantizes one tile into with.Into. It returns the error and the global scale.
func (b *batch) quantizeTile(t checkpoint.Tile, with quant.With) (errors sums, global float32, err error) {
	raw, x, err := b.readTile(t)
	if err != nil {
		return sums{}, 0, err
	}
	p := b.run.plan
	with.Importance, with.Mean = b.d.moments(t)
	errorOf := func(q quant.Quantizer) (*measure.Accumulator, error) {
		if errors.damping, err = b.rounded(t, q, raw, x, with); err != nil {
			return nil, err
		}
		global = p.convention.StoredGlobal(q, with.Into)
		values, errors := p.convention.Decoded(with.Into, global), measure.New(checkpoint.BlockLength)
		if b.d.readsBF16() {
			b.comparer.TileBF16(errors, raw, values)
		} else {
			b.comparer.Tile(errors, x, values)
		}
		return errors, nil
	}
	if b.run.searches(t.Weight) {
		if errors.nearest, err = errorOf(nearest(*b.d.quantizer)); err != nil {
			return sums{}, 0, err
		}
	}
	errors.stored, err = errorOf(*b.d.quantizer)
	return errors, global, err
}

// readTile reads the values of a tile, as BF16 if d.readsBF16, else as FP32. It adds them to
// the checksum of the source.
func (b *batch) readTile(t checkpoint.Tile) (raw tensor.BF16, x tensor.Dense, err error) {
	if b.d.readsBF16() {
		if raw, _, err = b.d.ReadBF16(t, b.raw); err == nil {
			b.raw = raw.Data
			b.addRead(t, raw.Data)
		}
		return raw, x, err
	}
	if x, err = b.d.ReadTile(t); err == nil {
		err = b.addValues(t, x)
	}
	return raw, x, err
}

// store writes the parts of the quantized batch.
func (b *batch) store(q *quant.Tensor, global float32) error {
	var err error
	for _, s := range b.d.stored {
		if s.Part == checkpoint.Codes || s.Part == checkpoint.Scales {
			raw, e := b.run.plan.convention.Bytes(q, s.Part, s.Dtype)
			if err = errors.Join(err, e); err == nil {
				err = b.put(s.Part, raw)
			}
		}
	}
	if s, ok := b.run.plan.convention.Struct(q.Format); ok && err == nil {
		b.structs = checkpoint.Interleaved(b.structs, s, q)
		err = b.put(checkpoint.Blocks, b.structs)
	}
	if err == nil {
		err = b.put(checkpoint.Global, checkpoint.GlobalBytes(global))
	}
	return err
}

// relabel copies the codes and scales of the batch, or casts them.
func (b *batch) relabel() ([]sums, error) {
	all := []sums{{stored: measure.New(checkpoint.BlockLength)}}
	if !b.d.Quantized() {
		return all, nil // a scale of the KV cache, which writeKnown wrote
	}
	q, err := b.d.ReadCodes(b.tile)
	if err != nil {
		return nil, err
	}
	if mayDecodeNaN(q) {
		if n := nonFinite(q.Dequantize(1).Data); n > 0 {
			all[0].stored.AddCopy(q.Rows()*q.Cols(), n)
		}
	}
	if b.d.cast != nil {
		if q, err = b.d.cast.tile(b.d.Weight, b.tile, b.run.plan.casting.Requantize); err != nil {
			return nil, err
		}
	}
	return all, b.store(q, 0)
}

// mayDecodeNaN reports whether a tensor has a code or a scale that is NaN or Inf.
func mayDecodeNaN(q *quant.Tensor) bool {
	special := func(f *format.Scalar, codes []byte) bool {
		if f == nil || f.StoredBits() != 8 {
			return false
		}
		var not [256]bool
		for code := range not {
			v := f.Decode(uint32(code))
			not[code] = v-v != 0
		}
		return slices.ContainsFunc(codes, func(code byte) bool { return not[code] })
	}
	return special(q.Format.Element, q.Codes) || special(q.Format.Scale, q.Scales) || nonFinite(q.Scales32) > 0
}

// decode writes the values of the batch in the dtype of the result.
func (b *batch) decode() ([]sums, error) {
	_, x, err := b.readTile(b.tile)
	if err != nil {
		return nil, err
	}
	to := b.d.stored[0].Spec
	f, ok := to.Dtype.Dense()
	if !ok {
		return nil, fmt.Errorf("decode to %s: use BF16, F16 or F32", to.Dtype)
	}
	if b.d.add != 0 {
		for i := range x.Data {
			x.Data[i] += b.d.add
		}
	}
	if b.d.fold != nil {
		b.d.fold.apply(b.tile, x)
	}
	errors := measure.New(checkpoint.BlockLength)
	if f == format.F32 {
		errors.AddCopy(len(x.Data), nonFinite(x.Data))
	} else {
		raw, back := make([]byte, len(x.Data)*f.Bits()/8), tensor.New(x.Rows, x.Cols)
		if err := tensor.ToBytes(raw, x.Data, f); err != nil {
			return nil, err
		}
		if err := tensor.FromBytes(back.Data, raw, f); err != nil {
			return nil, err
		}
		for i := range x.Rows {
			errors.Add(x.Row(i), back.Row(i))
		}
	}
	if b.d.joint.transposed {
		return []sums{{stored: errors}}, b.putTransposed(x, f)
	}
	return []sums{{stored: errors}}, b.d.PutDense(b.tile, x, f, func(raw []byte, at int64) error {
		return b.write(0, raw, at)
	})
}

// nonFinite returns the number of NaN and Inf values.
func nonFinite(values []float32) (n int) {
	for _, v := range values {
		if v-v != 0 {
			n++
		}
	}
	return n
}

// put writes a part of the batch to every tensor that stores it.
func (b *batch) put(part checkpoint.Part, data []byte) error {
	for i, s := range b.spans() {
		if b.d.stored[i].Part != part {
			continue
		}
		if err := b.write(i, data[s.From:s.To], s.At); err != nil {
			return err
		}
	}
	return nil
}

// spans returns the byte ranges of the batch in each of its stored tensors, if it is not
// decoded. From and To are positions in the part of the batch, At in the tensor. The first batch
// stores values of the whole tensor. Values that the plan knows are omitted.
func (b *batch) spans() iter.Seq2[int, checkpoint.Span] {
	return func(yield func(int, checkpoint.Span) bool) {
		for i, s := range b.d.stored {
			if s.Value != nil {
				continue
			}
			spans, size := b.spansOf(s)
			for span := range spans {
				if !yield(i, checkpoint.Span{At: span.At * int64(size), From: span.From * size, To: span.To * size}) {
					return
				}
			}
		}
	}
}

// spansOf returns the ranges of the batch in a stored tensor, in multiples of size bytes.
func (b *batch) spansOf(s checkpoint.Stored) (spans iter.Seq[checkpoint.Span], size int) {
	f, t := b.run.plan.formatOf(b.d), b.tile
	_, cols := b.d.Matrix()
	once := func(yield func(checkpoint.Span) bool) {
		if t.First() {
			yield(checkpoint.Span{To: 1})
		}
	}
	switch {
	case b.d.action == Copy:
		from, to := b.d.FlatBytes(t.FromCol), b.d.FlatBytes(t.ToCol)
		return func(yield func(checkpoint.Span) bool) { yield(checkpoint.Span{At: from, To: int(to - from)}) }, 1
	case s.Part == checkpoint.Codes:
		return b.run.plan.convention.CodeSpans(f, cols, t), 1
	case s.Part == checkpoint.Blocks:
		structs, _ := b.run.plan.convention.Struct(f)
		width, size := structs.Width(), structs.Bytes()
		if e, ok := encoderOf(f); ok {
			width, size = e.Elements, e.Bytes
		}
		n := func(col int) int { return col / width * size }
		return checkpoint.Tile{From: t.From, To: t.To, FromCol: n(t.FromCol), ToCol: n(t.ToCol)}.DenseSpans(n(cols)), 1
	case s.Part == checkpoint.Scales && !f.PerTensor():
		return t.Spans(f, s.Part, cols), s.Dtype.Bits() / 8
	case s.Part == checkpoint.Scales:
		return once, s.Dtype.Bits() / 8
	}
	return once, len(checkpoint.GlobalBytes(0))
}

// write writes bytes of stored tensor i, with each row at its place in the result, and adds
// them to its checksum.
func (b *batch) write(i int, raw []byte, at int64) error {
	d := b.d
	begin, _ := d.extent(d.stored[i])
	at += begin
	write := func(p []byte, at int64) error {
		b.written[i].Add(p, at)
		return b.run.writers[d.file].WriteTensorAt(d.stored[i].Name, p, at)
	}
	if d.rowBytes == 0 || i > 0 {
		return write(raw, at)
	}
	type part struct { // of a row
		at   int64
		data []byte
	}
	var parts []part
	for len(raw) > 0 {
		row, in := at/d.rowBytes, at%d.rowBytes
		n := min(int64(len(raw)), d.rowBytes-in)
		parts = append(parts, part{int64(d.row(int(row)))*d.rowBytes + in, raw[:n]})
		raw, at = raw[n:], at+n
	}
	// Most rows move within a head, so that few writes suffice.
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.at, b.at) })
	for len(parts) > 0 {
		begin, end := parts[0].at, parts[0].at
		b.rows = b.rows[:0]
		for len(parts) > 0 && parts[0].at == end {
			b.rows, end = append(b.rows, parts[0].data...), end+int64(len(parts[0].data))
			parts = parts[1:]
		}
		if err := write(b.rows, begin); err != nil {
			return err
		}
	}
	return nil
}

// skipWritten counts the bytes of a tile that an earlier run wrote.
func (r *run) skipWritten(t checkpoint.Tile) {
	b := &batch{run: r, d: r.plan.decisions[t.Weight], tile: t}
	w, ok := r.writers[b.d.file].(*safetensors.Writer)
	switch {
	case !ok:
	case b.d.action == Decode:
		s := b.d.stored[0]
		w.Skip(s.Name, int64(t.To-t.From)*int64(t.ToCol-t.FromCol)*int64(s.Dtype.Bits())/8)
	default:
		for i, s := range b.spans() {
			w.Skip(b.d.stored[i].Name, int64(s.To-s.From))
		}
	}
}
