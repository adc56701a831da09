package llamacpp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// llama.cpp's converter divides the matrix of keys and values of latent attention: attn_k_b [heads, rank, elements], the
// transposed rows of keys, and attn_v_b [heads, elements, rank].
const (
	latentKeys   = "attn_k_b.weight"
	latentValues = "attn_v_b.weight"
)

// addLatent adds the matrix of keys and values of latent attention, in F32. It reports whether t is one of its two
// parts.
func (v *view) addLatent(t gguf.TensorInfo) bool {
	parts := blockName.FindStringSubmatch(t.Name)
	if parts == nil || parts[2] != latentKeys && parts[2] != latentValues {
		return false
	}
	k, hasKeys := v.file.Lookup("blk." + parts[1] + "." + latentKeys)
	w, hasValues := v.file.Lookup("blk." + parts[1] + "." + latentValues)
	if !hasKeys || !hasValues || len(k.Shape) != 3 || len(w.Shape) != 3 || k.Shape[0] != w.Shape[0] || k.Shape[1] != w.Shape[2] ||
		!readable(k) || !readable(w) {
		return false
	}
	if parts[2] == latentKeys {
		name := fmt.Sprintf("model.layers.%s.self_attn.kv_b_proj.weight", parts[1])
		shape := []int64{k.Shape[0] * (k.Shape[2] + w.Shape[1]), k.Shape[1]}
		v.specs = append(v.specs, safetensors.Spec{Name: name, Dtype: safetensors.F32, Shape: shape})
		v.parts[name] = part{tensor: k, other: &w, heads: k.Shape[0]}
		if _, dense := denseTypes[k.Type.String()]; !dense {
			v.described.Decoded = append(
				v.described.Decoded,
				checkpoint.DecodedType{Tensor: name, Type: k.Type.String(), Bytes: k.Bytes() + w.Bytes(), Joined: true},
			)
		}
	}
	return true
}

// readable reports whether floats supports the type of a tensor.
func readable(t gguf.TensorInfo) bool {
	if dtype, ok := denseTypes[t.Type.String()]; ok {
		_, ok = dtype.Dense()
		return ok
	}
	return valuesOf(t.Type) != nil
}

// floats reads values of a tensor: n of them from the given one on, in whole blocks.
func (v *view) floats(t gguf.TensorInfo, from, n int64) ([]float32, error) {
	values := make([]float32, n)
	if dtype, ok := denseTypes[t.Type.String()]; ok {
		f, _ := dtype.Dense()
		size := int64(f.Bits() / 8)
		raw := make([]byte, n*size)
		if err := v.file.ReadTensorAt(raw, t, from*size); err != nil {
			return nil, err
		}
		return values, tensor.FromBytes(values, raw, f)
	}
	q := valuesOf(t.Type)
	raw := make([]byte, n/int64(q.elements)*int64(q.bytes))
	if err := v.file.ReadTensorAt(raw, t, from/int64(q.elements)*int64(q.bytes)); err != nil {
		return nil, err
	}
	q.decode(values, raw)
	return values, nil
}

// readLatent fills dst with bytes of a matrix of keys and values from offset off on, head by head.
func (v *view) readLatent(p part, dst []byte, off int64) error {
	rank, keys, width := p.tensor.Shape[1], p.tensor.Shape[2], p.other.Shape[1]
	head := make([]byte, 4*rank*(keys+width))
	for size := int64(len(head)); len(dst) > 0; {
		h := off / size
		k, err := v.floats(p.tensor, h*rank*keys, rank*keys)
		if err != nil {
			return err
		}
		w, err := v.floats(*p.other, h*rank*width, rank*width)
		if err != nil {
			return err
		}
		rows := make([]float32, 0, rank*(keys+width))
		for i := range keys {
			for j := range rank {
				rows = append(rows, k[j*keys+i])
			}
		}
		if err := tensor.ToBytes(head, slices.Concat(rows, w), format.F32); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSuffix(p.tensor.Name, ".weight"), err)
		}
		n := copy(dst, head[off-h*size:])
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
