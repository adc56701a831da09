package llamacpp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// addJoined adds the tensor of the view whose rows are alternately those of t and of another tensor. It reports
// whether t is one of the two.
func (v *view) addJoined(t gguf.TensorInfo, a architecture) bool {
	parts := blockName.FindStringSubmatch(t.Name)
	if parts == nil {
		return false
	}
	for _, j := range a.Joined {
		both, ok := v.bothOf(parts[1], j)
		if !ok {
			continue
		}
		switch t.Name {
		case both[0].Name:
			v.join(fmt.Sprintf("model.layers.%s.%s", parts[1], j.Name), both)
			return true
		case both[1].Name:
			return true // part of it
		}
	}
	return false
}

// onesOf reports whether t holds the global scales of experts and all of them are 1. The view then has no scales: one
// weight for all experts has one global scale.
func (v *view) onesOf(t gguf.TensorInfo, a architecture) bool {
	w, ok := v.file.Lookup(strings.TrimSuffix(t.Name, scaleSuffix) + ".weight")
	if !ok || w.Type != gguf.NVFP4 || a.Experts == nil || !a.Experts.Fused || !expertsName.MatchString(t.Name) || !strings.HasSuffix(t.Name,
		scaleSuffix) {
		return false
	}
	scales, err := readFloats(v.file, t)
	return err == nil && !slices.ContainsFunc(scales, func(s float32) bool { return s != 1 })
}

// bothOf returns the tensors of a layer that are joined. ok is false if they are not alike.
func (v *view) bothOf(layer string, j family.GGUFJoined) (both [2]gguf.TensorInfo, ok bool) {
	for i, name := range j.Parts {
		if both[i], ok = v.file.Lookup("blk." + layer + "." + name); !ok {
			return both, false
		}
	}
	a, b := both[0], both[1]
	return both, a.Type == b.Type && slices.Equal(a.Shape, b.Shape) && len(a.Shape) > 1
}

// join adds the tensor with the rows of both.
func (v *view) join(name string, both [2]gguf.TensorInfo) {
	shape := append([]int64{}, both[0].Shape...)
	rows, dim := int64(1), len(shape)-2
	for _, n := range shape[:dim+1] {
		rows *= n
	}
	if strings.HasSuffix(name, "_bias") {
		rows, dim = rows*shape[dim+1], dim+1
	}
	shape[dim] *= 2
	v.addPart(part{tensor: both[0], other: &both[1], rows: rows, size: 2 * both[0].Bytes()}, name, shape, Place{Name: both[0].Name})
}

// joinedBytes is about the size of the rows that readJoined reads at a time.
const joinedBytes = 1 << 20

// readJoined fills dst with bytes of a part with the rows of two tensors, from offset off on.
func (v *view) readJoined(p part, dst []byte, off int64) error {
	row := p.size / 2 / p.rows // bytes of the file
	out := row
	if p.unit > 0 {
		out = row / int64(p.bytes()) * int64(p.unit)
	}
	for len(dst) > 0 {
		first := off / out
		last := min((off+int64(len(dst))+out-1)/out, first+max(1, joinedBytes/out))
		both := make([]byte, (last-first)*out)
		for i, t := range []gguf.TensorInfo{p.tensor, *p.other} {
			from, to := (first+1-int64(i))/2, (last+1-int64(i))/2
			one := p
			one.tensor = t
			rows := make([]byte, (to-from)*out)
			if err := v.readRow(one, rows, from*row, 0); err != nil {
				return err
			}
			for r := from; r < to; r++ {
				copy(both[(2*r+int64(i)-first)*out:], rows[(r-from)*out:(r-from+1)*out])
			}
		}
		n := copy(dst, both[off-first*out:])
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
