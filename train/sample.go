package train

import "github.com/microscale-go/microscale/quant"

// Windows returns the tokens and targets of windows of text that begin at the
// given bytes: byte i+1 is to be told from the bytes up to i.
func windows(text []byte, starts []int, sequence int) (tokens, targets []int32) {
	tokens = make([]int32, 0, len(starts)*sequence)
	targets = make([]int32, 0, len(starts)*sequence)
	for _, at := range starts {
		for i := range sequence {
			tokens = append(tokens, int32(text[at+i]))
			targets = append(targets, int32(text[at+i+1]))
		}
	}
	return tokens, targets
}

// samplerTensor is the tensor number of the random stream that draws windows: no
// tensor of a model has it.
const samplerTensor = 1<<24 - 1

// trainingStarts draws where the windows of a step begin. They depend on (seed,
// step) alone: not on the recipe, nor on what was drawn before.
func trainingStarts(length, sequence, batch int, seed uint64, step int) []int {
	stream := quant.Stream{Seed: seed, Step: uint32(step), Tensor: samplerTensor}
	places := uint64(length - sequence)
	starts := make([]int, batch)
	for i := range starts {
		bits := uint64(stream.At(uint64(2*i)))<<32 | uint64(stream.At(uint64(2*i+1)))
		starts[i] = int(bits % places)
	}
	return starts
}

// validationStarts spreads at most count windows evenly over a text, without
// overlap.
func validationStarts(length, sequence, count int) []int {
	fit := (length - 1) / sequence
	count = min(count, fit)
	starts := make([]int, count)
	for i := range starts {
		starts[i] = i * fit / count * sequence
	}
	return starts
}
