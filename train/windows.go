package train

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
)

// Training implements Batches: windows of the training text at random positions. Token ids are bytes.
func (c *Corpus) Training(seed uint64, step, sequences, length int) (tokens, targets []int32, err error) {
	if len(c.train) <= length {
		return nil, nil, c.tooShort(length)
	}
	tokens, targets = windows(c.train, trainingStarts(len(c.train), length, sequences, seed, step), length)
	return tokens, targets, nil
}

// Validation implements Batches: windows that are evenly spread over the validation text and do not
// overlap.
func (c *Corpus) Validation(sequences, length int) (tokens, targets []int32, err error) {
	if len(c.validation) <= length {
		return nil, nil, c.tooShort(length)
	}
	tokens, targets = windows(c.validation, validationStarts(len(c.validation), length, sequences), length)
	return tokens, targets, nil
}

// tooShort returns the error for windows that do not fit into the text.
func (c *Corpus) tooShort(length int) error {
	return fmt.Errorf("%s: a text of %d bytes is too short for sequences of %d, want at least %d bytes, of which a sixteenth is for "+
		"validation: use more text or shorter sequences",
		c.Name(), c.Bytes(), length, sufficientBytes(length))
}

// sufficientBytes returns a length of text whose validation blocks hold a window of the given
// length.
func sufficientBytes(length int) int { return splitEvery * minBlock * (length/minBlock + 1) }

// windows returns the windows of text at the given positions: the target of byte i is byte i+1.
func windows(text []byte, starts []int, length int) (tokens, targets []int32) {
	tokens = make([]int32, 0, len(starts)*length)
	targets = make([]int32, 0, len(starts)*length)
	for _, at := range starts {
		for i := range length {
			tokens = append(tokens, int32(text[at+i]))
			targets = append(targets, int32(text[at+i+1]))
		}
	}
	return tokens, targets
}

// samplerTensor is the tensor number of the random stream that draws windows. No tensor of a model
// has it.
const samplerTensor = 1<<24 - 1

// trainingStarts draws the positions of the windows of a step. They depend only on the seed and the
// step.
func trainingStarts(textLength, length, sequences int, seed uint64, step int) []int {
	stream := quant.Stream{Seed: seed, Step: uint32(step), Tensor: samplerTensor}
	positions := uint64(textLength - length)
	starts := make([]int, sequences)
	for i := range starts {
		bits := uint64(stream.At(uint64(2*i)))<<32 | uint64(stream.At(uint64(2*i+1)))
		starts[i] = int(bits % positions)
	}
	return starts
}

// validationStarts spreads at most count windows evenly over a text, without overlap.
func validationStarts(textLength, length, count int) []int {
	fit := (textLength - 1) / length
	count = min(count, fit)
	starts := make([]int, count)
	for i := range starts {
		starts[i] = i * fit / count * length
	}
	return starts
}
