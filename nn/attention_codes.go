package nn

import (
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// attentionCodes are Q, K and V as the products of FP8 attention take them, and the
// scales of the pass that quantized them. One scale for a tensor makes the same codes in
// both directions, and decoded values the same codes again: so the backward pass has the
// operands of the forward pass.
type attentionCodes struct {
	operands [3]*quant.Tensor             // Query, Key, Value
	scales   *[len(operandNames)]*float32 // nil: nothing is saved
}

func (c *attentionCodes) bytes() int {
	n := 0
	for _, t := range c.operands {
		n += tensorBytes(t)
	}
	return n
}

// savesCodes reports whether attention saves its operands as codes: those of one scale
// for the tensor. Blocks of MXFP8 have other codes in the other direction, so that Q, K
// and V are saved as sources.
func (s *Scope) savesCodes() bool {
	return s.attentionQuantizer(Query).Format.PerTensor()
}

// saveCodes quantizes Q, K and V as the run did.
func (r *attentionRun) saveCodes() (c attentionCodes, err error) {
	scales := r.whole
	c.scales = &scales
	width, from := r.Heads*r.HeadDim, 0
	for i, o := range []Operand{Query, Key, Value} {
		x := r.keys.View(0, r.keys.Rows, from, from+width)
		into := r.s.Memory.take(r.s.attentionQuantizer(o).Format, quant.Rowwise, x)
		silent := *r.s
		silent.Observe = nil // the products observed their operands
		if c.operands[i], err = r.operands.quantize(&silent, r.Name, o, quant.Rowwise, x, r.whole[o], into); err != nil {
			return c, err
		}
		from, width = from+width, r.KVHeads*r.HeadDim
	}
	return c, nil
}

// restore returns Q, K and V side by side, and the codes to the scope's memory.
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
		s.Memory.give(t)
	}
	*c = attentionCodes{}
	return qkv
}
