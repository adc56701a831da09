package nn

import (
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// chunkTokens is the number of tokens whose queries are multiplied together. It is a multiple of
// every format's block.
const chunkTokens = 128

// A chunk is the work of one head of K and V on consecutive tokens of a sequence: the queries of
// all heads of the group, and the keys from the first that is in a window up to the last token.
type chunk struct {
	*attentionRun
	row    int          // first row of queries
	tokens int          // of the chunk
	first  int          // number of keys before that of the first token
	skip   int          // of them, those that are before the windows of all tokens
	head   int          // of K and V
	key    int          // first row of the sequence's keys
	k, v   tensor.Dense // keys and values, contiguous
}

// rows returns the number of rows of the stacked queries: the tokens of one head, then those of
// the next.
func (c *chunk) rows() int { return c.tokens * c.Heads / c.KVHeads }

// stack sets dst to the heads of the group in x, one above the other. x has the rows of queries,
// and Q or its gradient in its first columns.
func (c *chunk) stack(dst, x tensor.Dense) {
	d, group := c.HeadDim, c.Heads/c.KVHeads
	for i := range dst.Rows {
		from := (c.head*group + i/c.tokens) * d
		copy(dst.Row(i), x.Row(c.row + i%c.tokens)[from:from+d])
	}
}

// unstack is the inverse of stack.
func (c *chunk) unstack(x, src tensor.Dense) {
	d, group := c.HeadDim, c.Heads/c.KVHeads
	for i := range src.Rows {
		from := (c.head*group + i/c.tokens) * d
		copy(x.Row(c.row + i%c.tokens)[from:from+d], src.Row(i))
	}
}

// keyValue returns the K and V of a head and of rows [r0, r1) of x, which has the rows of keys, and K and
// V or their gradients in its last columns.
func (r *attentionRun) keyValue(x tensor.Dense, head, r0, r1 int) (k, v tensor.Dense) {
	d := r.HeadDim
	from := x.Cols + (head-2*r.KVHeads)*d
	return x.View(r0, r1, from, from+d), x.View(r0, r1, from+r.KVHeads*d, from+(r.KVHeads+1)*d)
}

// A worker is one goroutine of a run with its buffers.
type worker struct {
	*attentionRun
	q, p, dp, o, dq tensor.Dense
	k, v            tensor.Dense // of all keys of a sequence
	quantized       [operands][2]*quant.Tensor
	pool            Pool    // of operands in the shapes of other chunks
	scope           Scope   // of one thread
	silent          Scope   // the same without an observer
	amax            float32 // of dS, over all chunks so far
}

// chunk begins a chunk of a sequence that has the given number of tokens with its padding, and sets
// w.q to its stacked queries. The first chunk of a sequence and a head copies their K and V, whose rows
// are then contiguous.
func (w *worker) chunk(sequence, head, tokens, from int) *chunk {
	c := &chunk{
		attentionRun: w.attentionRun,
		row:          sequence*tokens + from,
		tokens:       min(chunkTokens, w.realTokens(sequence, tokens)-from),
		first:        w.length - tokens + from,
		head:         head,
		key:          sequence * w.length,
	}
	if w.Window > 0 {
		c.skip = max(0, c.first+1-w.Window)
	}
	if from == 0 {
		k, v := w.keyValue(w.keys, head, c.key, c.key+w.length)
		copyRows(w.dense(&w.k, k.Rows, k.Cols), k)
		copyRows(w.dense(&w.v, v.Rows, v.Cols), v)
	}
	last := c.first + c.tokens
	c.k, c.v = w.k.View(c.skip, last, 0, w.HeadDim), w.v.View(c.skip, last, 0, w.HeadDim)
	c.stack(w.dense(&w.q, c.rows(), w.HeadDim), w.queries)
	return c
}

// copyRows copies src to the first rows of dst.
func copyRows(dst, src tensor.Dense) {
	for i := range src.Rows {
		copy(dst.Row(i), src.Row(i))
	}
}

// dense returns *m with another shape, in the same memory if it is large enough. The contents are
// undefined.
func (w *worker) dense(m *tensor.Dense, rows, cols int) tensor.Dense {
	if cap(m.Data) < rows*cols {
		m.Data = make([]float32, rows*cols)
	}
	*m = tensor.Of(rows, cols, m.Data[:rows*cols])
	return *m
}

// An operandResult is a quantized operand or an error.
type operandResult struct {
	t   *quant.Tensor
	err error
}

// operand quantizes x in one direction.
func (w *worker) operand(o Operand, d quant.Direction, x tensor.Dense) operandResult {
	scope := &w.scope
	if w.restored && (o == query || o == key || o == value) {
		scope = &w.silent
	}
	if t := w.dense32(scope, o, d, x); t != nil {
		return operandResult{t, nil}
	}
	w.pool.put(w.quantized[o][d])
	into := w.pool.take(scope.attentionQuantizer(o).Format, d, x)
	t, err := w.attentionRun.operands.quantize(scope, w.Name, o, d, x, w.whole[o], into)
	w.quantized[o][d] = t
	if t != nil && o == gradProbability {
		w.amax = max(w.amax, t.Amax)
	}
	return operandResult{t, err}
}

// dense32 returns x itself as an operand in F32, or nil if that is not its format and order.
func (w *worker) dense32(s *Scope, o Operand, d quant.Direction, x tensor.Dense) *quant.Tensor {
	if d != quant.Rowwise || x.Stride != x.Cols || s.attentionQuantizer(o).Format.Name != quant.F32.Name || !littleEndian {
		return nil
	}
	return &quant.Tensor{Format: quant.F32, Shape: []int{x.Rows, x.Cols}, Codes: memory.Bytes(x.Data[:x.Rows*x.Cols]), Global: 1}
}

// littleEndian reports whether float32 numbers in memory have the order of bytes of their codes.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// multiply sets c to alpha·A·Bᵀ, or adds it to c.
func (w *worker) multiply(c tensor.Dense, alpha float32, accumulate bool, a, b operandResult) error {
	if err := firstError(a.err, b.err); err != nil {
		return err
	}
	return w.scope.mul(c, Product{Module: w.Name, A: a.t, B: b.t}, gemm.Options{Alpha: alpha, Accumulate: accumulate})
}

// probabilities returns P of a chunk: one row per stacked query, one column per key, zero for keys
// after the query or before its window.
func (w *worker) probabilities(c *chunk) (tensor.Dense, error) {
	p := w.dense(&w.p, c.rows(), c.k.Rows)
	err := w.multiply(p, w.scale, false,
		w.operand(query, quant.Rowwise, w.q),
		w.operand(key, quant.Rowwise, c.k))
	if err != nil {
		return p, err
	}
	group := w.Heads / w.KVHeads
	var rows [softmaxRows][]float32
	var sinks [softmaxRows]float32
	for r := range p.Rows { // all heads of a token, then those of the next
		i, h, n := r/group, r%group, r%softmaxRows
		from, to := 0, c.first-c.skip+i+1
		if w.Window > 0 {
			from = max(0, to-w.Window)
		}
		row := p.Row(h*c.tokens + i)
		if w.Softcap != 0 {
			softcap(row[from:to], w.Softcap)
		}
		clear(row[:from])
		clear(row[to:])
		rows[n], sinks[n] = row[from:to], w.sink(c.head*group+h)
		if n == softmaxRows-1 || r == p.Rows-1 {
			softmax(rows[:n+1], sinks[:n+1])
		}
	}
	return p, nil
}

// softmaxRows is the maximum number of rows of a call of softmax.
const softmaxRows = 4

// softmax replaces the scores of each row with their softmax. A sink is one more score of a row, which
// takes part in the denominator.
func softmax(rows [][]float32, sinks []float32) {
	var tops [softmaxRows]float32
	for i, row := range rows {
		tops[i] = max(largest(row), sinks[i])
		exps(row, tops[i])
	}
	totals := sums(rows)
	for i, row := range rows {
		sum := totals[i]
		if !math.IsInf(float64(sinks[i]), -1) {
			sum += float64(exp(sinks[i] - tops[i]))
		}
		inverse := float32(1 / sum)
		for j := range row {
			row[j] *= inverse
		}
	}
}

// sums returns the sum of each row, in the order of its elements. The additions of one row wait for each
// other, those of several rows do not.
func sums(rows [][]float32) (sum [softmaxRows]float64) {
	n := 0
	if len(rows) == softmaxRows {
		n = min(len(rows[0]), len(rows[1]), len(rows[2]), len(rows[3]))
		a, b, c, d := rows[0][:n], rows[1][:n], rows[2][:n], rows[3][:n]
		var s0, s1, s2, s3 float64 // in registers, unlike sum
		for i, e := range a {
			s0 += float64(e)
			s1 += float64(b[i])
			s2 += float64(c[i])
			s3 += float64(d[i])
		}
		sum = [softmaxRows]float64{s0, s1, s2, s3}
	}
	for i, row := range rows {
		total := sum[i]
		for _, e := range row[n:] {
			total += float64(e)
		}
		sum[i] = total
	}
	return sum
}

// largest returns the largest element that is not NaN, or -Inf.
func largest(row []float32) float32 {
	top, done := float32(math.Inf(-1)), 0
	if k := rowKernelFor(row); k != nil {
		done = len(row) / k.unit * k.unit
		top = k.largest(&row[0], len(row)/k.unit)
	}
	for _, v := range row[done:] {
		if v > top {
			top = v
		}
	}
	return top + 0 // +0 rather than -0, whichever was first
}

// softmaxBackward sets each row of dp to p∘(dp − Σ p∘dp).
func softmaxBackward(dp, p tensor.Dense) {
	for i := range p.Rows {
		d, row := dp.Row(i), p.Row(i)
		mean := float32(dot(d, row))
		for j, v := range row {
			d[j] = v * (d[j] - mean)
		}
	}
}

// maximum returns the largest element, or NaN if there is one.
func maximum(row []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range row {
		if !(v <= top) {
			top = v
			if v != v {
				break
			}
		}
	}
	return top
}
