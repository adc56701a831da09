package asmgen

// generators has one function or two for each package with generated code. Its files are
// committed in that package; go generate writes them.
var generators = []func() []*File{Bench, Gemm, Measure, MMA, MMAAVX2, NN, Quant, QuantAVX2, Tensor, Train}
