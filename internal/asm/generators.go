package asm

// generators lists the functions that write generated files, by package. The files are
// committed; go generate writes them.
var generators = []func() []*File{Bench, Gemm, GGML, Measure, MMA, MMAAVX2, MMANEON, NN, Quant, QuantAVX2, QuantNEON, Tensor, Train}
