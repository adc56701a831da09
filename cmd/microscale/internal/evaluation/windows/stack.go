package windows

import (
	"context"

	"github.com/microscale-go/microscale/tensor"
)

// A Stack is a decoder as a sequence of layers:
//
//	Embed → Layer 0 → … → Layer n−1 → Head
type Stack interface {
	Vocabulary() int // number of tokens
	Positions() int  // maximum length of a window
	Layers() int

	// Embed returns the residual stream before the first layer, a row for each token.
	Embed(tokens []int32) (tensor.Dense, error)

	// Layer returns layer i, read from its source if the stack does not hold it in memory.
	// original is the same layer of the original, for stacks that are quantized from it; it is nil
	// for the original itself. Layer may run while an earlier layer computes.
	Layer(ctx context.Context, i int, original Layer) (Layer, error)

	// Head returns the logits that follow rows of the residual stream after the last layer.
	Head(x tensor.Dense) (Head, error)
}

// A Fork is a model whose layers before First are those of the original, so that their residual streams are not computed twice.
type Fork interface {
	Stack
	First() int
}

// A Layer is one layer of a Stack.
type Layer interface {
	// Forward returns the residual stream after the layer. The rows of x are a window; x is not
	// changed.
	Forward(x tensor.Dense, watch Watch) (tensor.Dense, error)

	// Apply returns the output of a linear layer for another input.
	Apply(linear string, in tensor.Dense) (tensor.Dense, error)

	// Release gives the memory of a layer that was read from its source to layers that are read later.
	// The layer is not used any more.
	Release()
}

// A Watch has callbacks from within Layer.Forward. Nil ones are not called. Matrices are valid
// during the call.
type Watch struct {
	// Linear receives every linear layer by the name of its module, with its input and output.
	Linear func(linear string, in, out tensor.Dense) error

	// Cache receives the rotated keys and the values of an attention module.
	Cache func(module string, keys, values tensor.Dense)
}
