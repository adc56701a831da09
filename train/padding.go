package train

import "fmt"

// Padding is the token and the target of a position that extends a sequence to the length of others.
const Padding = -1

// lengths returns the numbers of tokens of sequences before their padding; nil if none has padding.
func lengths(tokens []int32, longest int) []int {
	list := make([]int, len(tokens)/longest)
	padded := false
	for i := range list {
		sequence := tokens[i*longest : (i+1)*longest]
		for list[i] < longest && sequence[list[i]] >= 0 {
			list[i]++
		}
		padded = padded || list[i] < longest
	}
	if !padded {
		return nil
	}
	return list
}

// checkPadding returns an error if padding is not at the end of a sequence, or has a target.
func checkPadding(tokens, targets []int32, length int) error {
	for i, token := range tokens {
		first := i%length == 0
		switch {
		case token < 0 && targets[i] >= 0:
			return fmt.Errorf("token %d of sequence %d is padding, but its target is %d, want a negative one", i%length, i/length, targets[i])
		case token >= 0 && !first && tokens[i-1] < 0:
			return fmt.Errorf("token %d of sequence %d is %d after padding, want padding only at the end", i%length, i/length, token)
		}
	}
	return nil
}

// countTokens returns the number of tokens that are not padding.
func countTokens(tokens []int32) (n int) {
	for _, t := range tokens {
		if t >= 0 {
			n++
		}
	}
	return n
}
