package decoder

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// quantized reports whether the weights of a part are in a block format.
func (r *reader) quantized(q part) bool {
	name, _ := q.weight(0)
	stored, _ := r.lookup(name)
	return stored.Quantized()
}

// A stackedPart is consecutive modules of a projection whose rows are in one matrix.
type stackedPart struct {
	weights []*checkpoint.Weight
	tiles   []checkpoint.Tile
	rows    int
	input   *activation
}

// stack groups the modules of a projection by matrix. Products with few tokens are faster with one
// matrix of several modules, as far as these differ only in their rows.
func (r *reader) stack(p *projection) (list []stackedPart, err error) {
	for _, q := range p.parts {
		name, _ := q.weight(p.in)
		w, _ := r.lookup(name)
		var input *activation
		if w.Quantized() {
			if input, err = r.activation(w); err != nil {
				return nil, err
			}
		}
		n := len(list) - 1
		if n >= 0 && reflect.DeepEqual(list[n].input, input) {
			input = list[n].input // shared, so that the input is quantized once
		}
		if n < 0 || list[n].input != input || !r.joins(list[n], w) {
			list, n = append(list, stackedPart{input: input}), n+1
		}
		list[n].weights = append(list[n].weights, w)
		list[n].tiles = append(list[n].tiles, checkpoint.Tile{From: q.expert * q.out, To: (q.expert + 1) * q.out, ToCol: p.in})
		list[n].rows += q.out
	}
	return list, nil
}

// joins reports whether the rows of w can follow those of p in one matrix: with the same format, and
// blocks that end with the rows of p.
func (r *reader) joins(p stackedPart, w *checkpoint.Weight) bool {
	v := p.weights[0]
	switch {
	case r.options.Inputs.Format.Element == nil || v.Quantized() != w.Quantized():
		return false
	case !w.Quantized():
		return v.Dtype == w.Dtype
	}
	rows := v.Format.Block.Rows
	return v.Format.Name == w.Format.Name && v.Global == w.Global && rows > 0 && p.rows%rows == 0
}

// freeze makes a projection one with weights as they are stored, and returns the reads of its weights
// and biases.
func (r *reader) freeze(p *projection) (reads []rowRead, err error) {
	f := &frozen{name: p.name}
	parts, err := r.stack(p)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		t, err := r.newMatrix(part.weights[0], part.rows, p.in)
		if err != nil {
			return nil, err
		}
		f.parts = append(f.parts, frozenPart{weight: t, input: part.input})
		row := 0
		for i, w := range part.weights {
			tile := part.tiles[i]
			to := row + tile.To - tile.From
			reads = append(reads, r.readMatrix(t.ViewRows(row, to), w, tile)...)
			row = to
		}
	}
	if p.bias {
		reads = append(reads, r.readBiases(f, p.parts)...)
	}
	p.frozen = f
	if r.options.Inputs.Format.Element != nil {
		of := &reading{complete: func() error { return p.optimize(r.options.Inputs, 0) }}
		of.left.Store(int64(len(reads)))
		for i := range reads {
			reads[i].of = of
		}
	}
	return reads, nil
}

// newMatrix returns memory for rows of a weight: quantized ones as they are stored, others in BF16 if
// that is their dtype, and otherwise in F32.
func (r *reader) newMatrix(w *checkpoint.Weight, rows, cols int) (*quant.Tensor, error) {
	f := quant.F32
	switch {
	case w.Quantized():
		f = w.Format
	case w.Dtype == safetensors.BF16:
		f = quant.BF16
	}
	t := r.released.take(f, rows, cols)
	if t == nil {
		var err error
		if t, err = quant.NewTensor(f, rows, cols); err != nil {
			return nil, err
		}
		memory.Huge(t.Codes)
		memory.Huge(t.Scales)
		memory.Huge(memory.Bytes(t.Scales32))
	}
	if w.Quantized() {
		t.Global = w.Global
	}
	return t, nil
}

// readMatrix returns the reads of a tile of a weight into t, which newMatrix made. The inverse of a
// stored global scale is rounded to float32, as clients that multiply codes do; the quotients of
// ReadDecoded, which differ in the last bit, would be a float32 number for each block.
func (r *reader) readMatrix(t *quant.Tensor, w *checkpoint.Weight, tile checkpoint.Tile) []rowRead {
	step := 1
	if t.Format.Scaled() {
		if step = t.Format.Block.Rows; step == 0 { // one scale for all rows
			step = max(1, t.Rows())
		}
	}
	return r.split(w, tile, t.RowBytes(), step, func(from, to int) error {
		rows, part := t.ViewRows(from, to), tile
		part.From, part.To = tile.From+from, tile.From+to
		switch {
		case w.Quantized():
			return w.ReadInto(rows, part)
		case w.HasRowsBF16():
			_, _, err := w.ReadBF16(part, rows.Codes)
			return err
		}
		d, err := w.ReadTile(part)
		if err != nil {
			return err
		}
		_, err = quant.Quantizer{Format: t.Format}.Rowwise(d, quant.With{Threads: 1, Into: rows})
		return err
	})
}

// readBiases allocates the biases of a projection and returns their reads.
func (r *reader) readBiases(f *frozen, parts []part) (reads []rowRead) {
	total := 0
	for _, q := range parts {
		total += q.out
	}
	f.bias = make([]float32, total)
	row := 0
	for _, q := range parts {
		name, _ := q.biases()
		w, _ := r.lookup(name)
		tile := checkpoint.Tile{To: 1, ToCol: q.out}
		if q.of > 0 {
			tile.From, tile.To = q.expert, q.expert+1
		}
		bias := f.bias[row : row+q.out]
		row += q.out
		reads = append(reads, rowRead{weight: w, row: tile.From, read: func() error {
			d, err := w.ReadTile(tile)
			if err == nil {
				copy(bias, d.Row(0))
			}
			return err
		}})
	}
	return reads
}

// keepsTable reports whether an embedding for inference stays as it is stored. One whose values would
// differ from those of clients in the last bit (see readMatrix) becomes F32.
func keepsTable(w *checkpoint.Weight) bool {
	return w.HasRowsBF16() || w.Quantized() && !w.Divided()
}

// newEmbedding returns the memory of the embedding.
func (r *reader) newEmbedding(plan *Plan) (*nn.Embedding, error) {
	w, ok := r.lookup(embeddingModule + ".weight")
	if !ok || !r.options.Inference || !keepsTable(w) {
		return plan.newEmbedding(), nil
	}
	t, err := r.newMatrix(w, plan.Vocabulary, plan.Hidden)
	return &nn.Embedding{Name: embeddingModule, Stored: t}, err
}

// sharesTable reports whether a tied head can have the memory of the embedding. gemm.Interleave would
// change the order of 4-bit codes, which look-ups read.
func sharesTable(f quant.Format) bool { return f.Element.StoredBits() > 4 }

// readEmbedding returns the reads of an embedding that stays as it is stored. If its format permits, a
// tied head shares the table, which is then read once.
func (r *reader) readEmbedding(m *Model) ([]rowRead, error) {
	t := m.embedding.Stored
	if t == nil {
		return nil, nil // it is a parameter
	}
	w, _ := r.lookup(embeddingModule + ".weight")
	reads := r.readMatrix(t, w, checkpoint.Tile{To: t.Rows(), ToCol: t.Cols()})
	if !m.plan.Tied || !sharesTable(t.Format) {
		return reads, nil
	}
	head := frozenPart{weight: t}
	m.head.frozen = &frozen{name: m.head.name}
	if t.Format.Scaled() {
		var err error
		if head.input, err = r.activation(w); err != nil {
			return nil, err
		}
		if head.input == nil && r.options.Inputs.Format.Element != nil {
			head.input = &activation{format: r.options.Inputs.Format, residual: r.options.Inputs.Residual}
		}
	}
	m.head.frozen.parts = []frozenPart{head}
	return reads, nil
}

// freezeAll freezes the projections that are not yet frozen, and returns their reads.
func (r *reader) freezeAll(ctx context.Context, projections []*projection) ([]rowRead, error) {
	reads := make([][]rowRead, len(projections))
	err := each(len(projections), r.pace.readers, func(i int) (err error) {
		if p := projections[i]; ctx.Err() == nil && p.frozen == nil {
			reads[i], err = r.freeze(p)
		}
		return cmp.Or(ctx.Err(), err)
	})
	return slices.Concat(reads...), err
}

// readParam returns the reads of a parameter.
func (r *reader) readParam(p *nn.Param) []rowRead {
	w, _ := r.lookup(p.Name)
	value := p.Value
	tile := checkpoint.Tile{To: value.Rows, ToCol: value.Cols}
	return r.split(w, tile, 4*value.Cols, 1, func(from, to int) error {
		d, err := w.Read(from, to)
		if err != nil {
			return err
		}
		for i := range d.Rows {
			copy(value.Row(from+i), d.Row(i))
		}
		return nil
	})
}
