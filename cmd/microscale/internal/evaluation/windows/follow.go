package windows

import (
	"context"
	"errors"

	"github.com/microscale-go/microscale/tensor"
)

// follows reports whether the statistics are those of inputs that quantized layers give: then the only model is quantized from the original
// layer by layer, by the statistics of the layer, and both streams are kept.
func (w *walk) follows() bool { return w.Inputs != nil && w.Original != nil }

// followLayer applies layer l of the original to both streams of all windows, collects the statistics of its inputs, and then applies the
// layer that the model makes of them to the stream of the model.
func (w *walk) followLayer(ctx context.Context, l int, original Layer, to []*residuals) error {
	err := w.eachWindow(l, func(_ int, read func(k int) (tensor.Dense, error)) error { return w.pair(ctx, original, read, to[0]) })
	if err == nil {
		err = w.passes(ctx, l, original, Watch{Linear: func(linear string, in, _ tensor.Dense) error { return w.Inputs.Add(linear, in) }})
	}
	if err != nil {
		return err
	}
	low, err := w.stacks[1].Layer(ctx, l, original)
	if err != nil {
		return err
	}
	defer low.Release()
	return w.eachWindow(l, func(_ int, read func(k int) (tensor.Dense, error)) error {
		_, skipped := read(0)
		x, err := read(1)
		if err := errors.Join(skipped, err, ctx.Err()); err != nil {
			return err
		}
		y, err := low.Forward(x, Watch{})
		if err == nil {
			err = to[1].append(y)
		}
		w.step(l)
		return err
	})
}

// pair applies the original layer to both streams of a window, writes the stream of the original, and adds the inputs of linear layers.
func (w *walk) pair(ctx context.Context, original Layer, read func(k int) (tensor.Dense, error), to *residuals) error {
	x, err := read(0)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	seen := map[string]tensor.Dense{}
	y, err := original.Forward(x, Watch{Linear: func(linear string, in, _ tensor.Dense) error {
		seen[linear] = in.Clone()
		return nil
	}})
	if err == nil {
		err = to.append(y)
	}
	if err != nil {
		return err
	}
	if x, err = read(1); err != nil {
		return err
	}
	_, err = original.Forward(x, Watch{Linear: func(linear string, in, _ tensor.Dense) error {
		return w.Inputs.AddPair(linear, seen[linear], in)
	}})
	return err
}
