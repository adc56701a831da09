package quant

import "github.com/microscale-go/microscale/internal/behavior"

// GlobalInverse returns the inverse of the global scale of a tensor of the given
// amax, for clients that store that and divide by it: compressed-tensors decodes
// code·(scale/E). It is the number E that q computes codes with, where it does so by
// such a quotient; 1/E need not be the bits of the tensor's Global, nor the
// inverse of that the bits of E.
//
//	behavior.DecodeFirstBF16  E = bf16(448·max·bf16(1/amax))
//	others           E = float32(1/Global): of all numbers it makes scale/E closest to scale·Global
//
// An inverse beyond the largest float32 becomes that, the inverse of the smallest global scale.
func (q Quantizer) GlobalInverse(amax float32) float32 {
	g := arithmetics[q.Arithmetic].global(amax, q.Format.Element.Max(), q.top())
	if q.Arithmetic == behavior.DecodeFirstBF16 {
		return g.encode
	}
	return safeDivide(1, g.decode)
}
