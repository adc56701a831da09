package nn

import (
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// attentionCodes are Q, K and V as the products of FP8 attention take them, and the scales of the
// forward pass. With per-tensor scales, the codes are the same in both directions, and quantizing
// the decoded values gives the same codes again, so the backward pass has the operands of the
// forward pass.
type attentionCodes struct {
	operands [3]*quant.Tensor // Q, K, V
	scales   *wholeScales     // nil: nothing is saved
}

func (c *attentionCodes) bytes() int {
	n := 0
	for _, t := range c.operands {
		n += tensorBytes(t)
	}
	return n
}

// savesCodes reports whether attention saves its operands as codes, which requires per-tensor
// scales. MXFP8 blocks have other codes in the other direction, so their sources are saved.
func (s *Scope) savesCodes() bool {
	return s.attentionQuantizer(query).Format.PerTensor()
}

// saveCodes quantizes Q, K and V as the run did.
func (r *attentionRun) saveCodes() (c attentionCodes, err error) {
	scales := r.whole
	c.scales = &scales
	width, from := r.Heads*r.HeadDim, 0
	silent := *r.s
	silent.Observer = Observer{} // the operands of the products were observed
	for i, o := range []Operand{query, key, value} {
		x := r.keys.View(0, r.keys.Rows, from, from+width)
		into := r.s.Pool.take(r.s.attentionQuantizer(o).Format, quant.Rowwise, x)
		if c.operands[i], err = r.operands.quantize(&silent, r.Name, o, quant.Rowwise, x, r.whole[o], into); err != nil {
			return c, err
		}
		from, width = from+width, r.KVHeads*r.HeadDim
	}
	return c, nil
}

// restore returns Q, K and V side by side, and puts the codes into the pool.
func (c *attentionCodes) restore(s *Scope) tensor.Dense {
	cols := 0
	for _, t := range c.operands {
		cols += t.Cols()
	}
	qkv := tensor.New(c.operands[0].Rows(), cols)
	from := 0
	for _, t := range c.operands {
		values := t.Dequantize(s.Threads)
		for i := range qkv.Rows {
			copy(qkv.Row(i)[from:], values.Row(i))
		}
		from += t.Cols()
		s.Pool.put(t)
	}
	*c = attentionCodes{}
	return qkv
}
