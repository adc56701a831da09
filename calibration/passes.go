package calibration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Passes returns how often the text has to be read for a layer: once, unless the sums of all experts would take more than Memory. Finish
// ends a pass. The experts of a pass are those that fit beside the sums of the layer itself.
func (c *Collector) Passes(layer int) int { return len(c.groups(layer)) }

// bytes returns the memory of the sums of an input.
func (c *Collector) bytes(l Linear) int64 {
	n := 24 * int64(l.Width)
	if c.Hessian {
		n += 8 * int64(l.Width) * int64(l.Width)
	}
	if c.pairs(l) {
		n += 8 * int64(l.Width) * int64(l.Width)
	}
	return n
}

// rest returns the memory beside the sums of a pass: sums of all experts, and at its end the largest matrix, which is written, with its
// bytes.
func (c *Collector) rest(layer int) (pooled, written int64) {
	for _, l := range c.Layers[layer] {
		one := c.bytes(l)
		if c.pairs(l) { // H and the drift are written one after the other
			one -= 8 * int64(l.Width) * int64(l.Width)
		}
		written = max(written, one)
	}
	for _, l := range pools(c.Layers[layer]) {
		if !l.Stream {
			pooled += 16 * int64(l.Width)
			continue
		}
		pooled += c.bytes(l)
	}
	return pooled, written
}

// groups divides the linear layers of a layer among passes, in their order. The first has all that are not of experts; each, if
// it can, an expert.
func (c *Collector) groups(layer int) (groups [][]Linear) {
	var group, experts []Linear
	pooled, written := c.rest(layer)
	held := pooled + written
	for _, l := range c.Layers[layer] {
		if l.Kind == "" {
			group, held = append(group, l), held+c.bytes(l)
		} else {
			experts = append(experts, l)
		}
	}
	if c.Memory == 0 || len(experts) == 0 {
		return [][]Linear{c.Layers[layer]}
	}
	for _, l := range experts {
		if len(group) > 0 && held+c.bytes(l) > c.Memory {
			groups, group, held = append(groups, group), nil, pooled+written
		}
		group, held = append(group, l), held+c.bytes(l)
	}
	return append(groups, group)
}

// pools returns an input of all experts for each kind of linear layer of experts.
func pools(layer []Linear) (list []Linear) {
	seen := map[string]bool{}
	for _, l := range layer {
		if l.Kind != "" && !seen[l.Kind] {
			seen[l.Kind] = true
			list = append(list, l)
		}
	}
	return list
}

// passPath returns the path of the file of the sums of a pass but the last.
func (c *Collector) passPath(layer, pass int) string {
	return strings.TrimSuffix(c.part(layer), filepath.Ext(c.part(layer))) + fmt.Sprintf("-%d.safetensors", pass)
}

// keep writes the sums of a pass to its file.
func (c *Collector) keep(ctx context.Context, layer int, group []Linear) error {
	w := writer{}
	for _, l := range group {
		if s := c.layer[l.Name]; s != nil && s.amax > 0 {
			w.sums(s, headerInput{Modules: l.Modules, Tokens: s.tokens, Amax: c.amax(l, s)})
		}
	}
	return w.write(ctx, c.passPath(layer, c.pass))
}

// kept opens the files of the passes of a layer before the last. The caller closes them.
func (c *Collector) kept(layer int) (list []*Statistics, err error) {
	for pass := range c.pass {
		s, err := Read(c.passPath(layer, pass))
		if err != nil {
			return list, err
		}
		list = append(list, s)
	}
	return list, nil
}

// removePasses removes the files of passes of a layer.
func (c *Collector) removePasses(layer int) (err error) {
	for pass := range len(c.Layers[layer]) { // of a run with less memory, too
		if removed := os.Remove(c.passPath(layer, pass)); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}

func closeAll(list []*Statistics) (err error) {
	for _, s := range list {
		err = errors.Join(err, s.Close())
	}
	return err
}
