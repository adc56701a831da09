package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// layerWeights are the weights of a layer, with their shapes in quarters of the hidden size.
var layerWeights = []struct {
	name       string
	rows, cols int64
}{
	{"self_attn.q_proj", 4, 4}, {"self_attn.k_proj", 1, 4}, {"self_attn.v_proj", 1, 4}, {"self_attn.o_proj", 4, 4},
	{"mlp.gate_proj", 16, 4}, {"mlp.up_proj", 16, 4}, {"mlp.down_proj", 4, 16},
}

// layerBytes returns the bytes of a layer of BF16 weights.
func layerBytes(hidden int64) float64 {
	var n int64
	for _, w := range layerWeights {
		n += 2 * w.rows * w.cols * hidden * hidden / 16
	}
	return float64(n)
}

// writeCheckpoint writes a BF16 checkpoint with the layers of a small Llama and normally
// distributed values, of approximately size bytes in files of about a gigabyte. It returns
// the number of bytes of all weights.
func writeCheckpoint(ctx context.Context, dir string, size float64) (bytes int64, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(`{"torch_dtype": "bfloat16"}`), 0o666); err != nil {
		return 0, err
	}
	hidden := int64(2048)
	for hidden > 64 && layerBytes(hidden) > size {
		hidden /= 2
	}
	layers := max(1, int(math.Round(size/layerBytes(hidden))))
	files := max(1, int(math.Round(size/1e9)))
	data, err := weightPattern()
	if err != nil {
		return 0, err
	}
	index := safetensors.Index{WeightMap: map[string]string{}}
	for file := range files {
		name := safetensors.ShardName(file+1, files)
		var specs []safetensors.Spec
		for l := layers * file / files; l < layers*(file+1)/files; l++ {
			for _, w := range layerWeights {
				spec := safetensors.Spec{Name: fmt.Sprintf("model.layers.%d.%s.weight", l, w.name), Dtype: safetensors.BF16,
					Shape: []int64{w.rows * hidden / 4, w.cols * hidden / 4}}
				specs = append(specs, spec)
				index.WeightMap[spec.Name] = name
				bytes += 2 * spec.Shape[0] * spec.Shape[1]
			}
		}
		if err := writeWeights(ctx, filepath.Join(dir, name), specs, data); err != nil {
			return 0, err
		}
	}
	if files == 1 {
		return bytes, nil
	}
	text, err := index.Marshal()
	if err != nil {
		return 0, err
	}
	return bytes, os.WriteFile(filepath.Join(dir, safetensors.IndexName), text, 0o666)
}

// weightPattern returns BF16 values with the spread of weights, 4 MB with the period pattern.
func weightPattern() ([]byte, error) {
	values, random := make([]float32, pattern), rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = float32(0.02 * random.NormFloat64())
	}
	data := make([]byte, 2*pattern)
	if err := tensor.ToBytes(data, values, format.BF16); err != nil {
		return nil, err
	}
	return []byte(strings.Repeat(string(data), 32)), nil
}

// bf16Bytes returns the bytes of a tensor of BF16.
func bf16Bytes(s safetensors.Spec) int64 {
	n := int64(2)
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// writeWeights writes a file whose tensors repeat data.
func writeWeights(ctx context.Context, path string, specs []safetensors.Spec, data []byte) error {
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		return err
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	for _, s := range specs {
		n := bf16Bytes(s)
		for at := int64(0); at < n; at += int64(len(data)) {
			err := ctx.Err()
			if err == nil {
				err = w.WriteTensorAt(s.Name, data[:min(int64(len(data)), n-at)], at)
			}
			if err != nil {
				_ = w.Abort() // the caller removes the directory
				return err
			}
		}
	}
	return w.Close()
}
