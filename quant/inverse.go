package quant

// GlobalInverse returns the inverse E of the global scale of a tensor of the given amax, for clients
// that store E: compressed-tensors decodes code·(scale/E). q must be valid, with a format that has a
// global scale.
//
//	DecodeFirstBF16  E = bf16(top·max·bf16(1/amax)), top = 448 or TopScale; q divides scales by E
//	others                    E = float32(1/Global), at most the largest float32
//
// 1/E need not have the bits of the tensor's Global, nor 1/Global those of E.
func (q Quantizer) GlobalInverse(amax float32) float32 {
	g := arithmetics[q.Arithmetic].global(amax, q.Format.Element.Max(), q.top())
	if q.Arithmetic == DecodeFirstBF16 {
		return g.encode
	}
	return safeDivide(1, g.decode)
}
