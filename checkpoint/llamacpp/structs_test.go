package llamacpp

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/gguf"
)

// counted counts the bytes that are read.
type counted struct {
	*bytes.Reader
	n atomic.Int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.n.Add(int64(len(p)))
	return c.Reader.ReadAt(p, off)
}

// TestReadRangesAt compares codes and scales that are read together with those that are read alone, for each
// type of structs and order of rows. Together, each byte is read once, as far as the rows are not within a head.
func TestReadRangesAt(t *testing.T) {
	const rows, cols, dim = 320, 4096, 32 // more than structBytes
	llama, gptOSS := []gguf.Pair{{Key: "general.architecture", Value: "llama"}, {Key: "llama.attention.key_length", Value: uint32(dim)}},
		[]gguf.Pair{{Key: "general.architecture", Value: "gpt-oss"}}
	for _, c := range []struct {
		kind     gguf.Type
		name     string
		shape    []int64
		metadata []gguf.Pair
		view     string // name of the weight
		tensors  int64  // of the file in one of the view
	}{
		{gguf.MXFP4, "blk.0.attn_v.weight", []int64{rows, cols}, llama, "model.layers.0.self_attn.v_proj.weight", 1},
		{gguf.MXFP4, "blk.0.attn_q.weight", []int64{rows, cols}, llama, "model.layers.0.self_attn.q_proj.weight", 1},
		{gguf.NVFP4, "blk.0.attn_k.weight", []int64{rows, cols}, llama, "model.layers.0.self_attn.k_proj.weight", 1},
		{gguf.Q8_0, "blk.0.attn_q.weight", []int64{rows, cols}, llama, "model.layers.0.self_attn.q_proj.weight", 1},
		{gguf.Q8_0, "blk.0.attn_v.weight", []int64{rows, cols}, llama, "model.layers.0.self_attn.v_proj.weight", 1},
		{gguf.MXFP4, "blk.0.ffn_%s_exps.weight", []int64{4, rows / 8, cols}, gptOSS, "model.layers.0.mlp.experts.gate_up_proj", 2},
		{gguf.Q8_0, "blk.0.ffn_%s_exps.weight", []int64{4, rows / 8, cols}, gptOSS, "model.layers.0.mlp.experts.gate_up_proj", 2},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.kind, c.view), func(t *testing.T) {
			specs := []gguf.Spec{{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 2}}}
			names := []string{c.name}
			if c.tensors == 2 {
				names = []string{fmt.Sprintf(c.name, "gate"), fmt.Sprintf(c.name, "up")}
			}
			for _, name := range names {
				specs = append(specs, gguf.Spec{Name: name, Type: c.kind, Shape: c.shape})
			}
			v, r := viewOf(t, file(t, specs, c.metadata...))
			codes, ok := v.plain.Lookup(c.view)
			scales, found := v.plain.Lookup(c.view + "_scale")
			if !ok || !found {
				t.Fatalf("%s is missing in %v", c.view, v.plain.Tensors())
			}
			row := int64(structsOf(c.kind).Bytes() * cols / structsOf(c.kind).Width())
			for _, rg := range [][2]int64{{0, rows}, {0, 0}, {5, 6}, {33, 300}, {64, 192}} {
				var together, alone [2][]byte
				var off [2]int64
				for i, info := range [][2]int64{{codes.Begin, codes.Bytes()}, {scales.Begin, scales.Bytes()}} {
					each := info[1] / rows
					off[i] = v.plain.DataStart() + info[0] + rg[0]*each
					together[i], alone[i] = make([]byte, (rg[1]-rg[0])*each), make([]byte, (rg[1]-rg[0])*each)
				}
				r.n.Store(0)
				if err := v.ReadRangesAt(together[:], off[:]); err != nil {
					t.Fatal(err)
				}
				if got, want := r.n.Load(), (rg[1]-rg[0]+2*(dim-1))*row; rg[0]%dim == 0 && rg[1]%dim == 0 && got != (rg[1]-rg[0])*row || got > want {
					t.Errorf("rows %v: got %d bytes read, want %d", rg, got, (rg[1]-rg[0])*row)
				}
				for i := range alone {
					if _, err := v.ReadAt(alone[i], off[i]); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(alone[i], together[i]) {
						t.Errorf("rows %v: part %d differs", rg, i)
					}
				}
			}
		})
	}
}

// viewOf returns the view of a file and the reader that it reads through.
func viewOf(t *testing.T, path string) (*view, *counted) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &counted{Reader: bytes.NewReader(data)}
	f, err := gguf.NewFile(r, int64(len(data)), path)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{file: f, metadata: map[string]string{}}
	if err := v.build(); err != nil {
		t.Fatal(err)
	}
	return v, r
}
