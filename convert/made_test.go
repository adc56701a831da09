package convert

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A made tensor is a tensor of a test checkpoint: normal numbers with the given standard
// deviation that depend on its name alone.
type made struct {
	name  string
	dtype safetensors.Dtype
	std   float32
	shape []int64
}

const (
	shard1 = "model-00001-of-00002.safetensors"
	shard2 = "model-00002-of-00002.safetensors"
)

// madeConfig has members whose order and spelling a conversion preserves.
const madeConfig = `{
  "model_type": "made",
  "architectures": ["Made"],
  "rope": {"theta": 1e4, "z": [1,2], "a": null},
  "eps": 1e-05,
  "torch_dtype": "bfloat16",
  "a last one": "é\u00e9"
}
`

// madeModel is a checkpoint of two shards with siblings in different shards, experts, odd
// widths, a weight of several tiles, and various dtypes and ranks.
func madeModel() map[string][]made {
	const bf16, f32, f16, i64, u8 = safetensors.BF16, safetensors.F32, safetensors.F16, safetensors.I64, safetensors.U8
	return map[string][]made{
		shard1: {
			{"model.embed_tokens.weight", bf16, 0.02, []int64{96, 64}},
			{"model.layers.0.input_layernorm.weight", bf16, 1, []int64{64}},
			{"model.layers.0.self_attn.q_proj.weight", bf16, 0.01, []int64{64, 64}},
			{"model.layers.0.self_attn.q_proj.bias", bf16, 0.01, []int64{64}},
			{"model.layers.0.self_attn.o_proj.weight", f32, 0.02, []int64{64, 64}},
			{"model.layers.0.mlp.experts.0.gate_proj.weight", bf16, 0.02, []int64{48, 64}},
			{"model.layers.0.mlp.experts.1.gate_proj.weight", bf16, 0.3, []int64{48, 64}},
			{"model.layers.0.mlp.experts.0.down_proj.weight", f16, 0.02, []int64{64, 48}},
			{"model.layers.0.mlp.gate.weight", bf16, 0.1, []int64{2, 64}},
			{"model.big.weight", bf16, 0.02, []int64{300, 1024}}, // 128 rows are a tile
			{"model.ids", i64, 0, []int64{1, 16}},
			{"model.none.weight", bf16, 1, []int64{0, 64}},
		},
		shard2: {
			{"model.layers.0.self_attn.k_proj.weight", bf16, 0.1, []int64{32, 64}},
			{"model.layers.0.self_attn.v_proj.weight", bf16, 0.03, []int64{32, 64}},
			{"model.layers.0.mlp.experts.0.up_proj.weight", bf16, 0.2, []int64{48, 64}},
			{"model.layers.0.mlp.experts.1.up_proj.weight", bf16, 0.02, []int64{48, 64}},
			{"model.layers.0.mlp.experts.fused", bf16, 0.02, []int64{2, 8, 64}},
			{"model.odd.weight", bf16, 0.02, []int64{7, 100}},
			{"model.odder.weight", bf16, 0.02, []int64{130, 257}},
			{"model.blocks.weight", bf16, 0.02, []int64{130, 256}},
			{"model.square.weight", bf16, 0.02, []int64{128, 256}},
			{"model.zero.weight", bf16, 0, []int64{33, 128}},
			{"model.tiny.weight", f32, 1e-41, []int64{16, 128}},
			{"model.scalar", f32, 1, []int64{}},
			{"model.mask", u8, 0, []int64{3, 5}},
			{"model.norm.weight", bf16, 1, []int64{64}},
			{"lm_head.weight", bf16, 0.02, []int64{96, 64}},
		},
	}
}

// bytes returns the tensor's data.
func (m made) bytes(t testing.TB) []byte {
	t.Helper()
	n := 1
	for _, d := range m.shape {
		n *= int(d)
	}
	data := make([]byte, n*m.dtype.Bits()/8)
	dense, ok := m.dtype.Dense()
	if !ok {
		return data
	}
	seed := fnv.New64a()
	seed.Write([]byte(m.name))
	rnd := rand.New(rand.NewPCG(seed.Sum64(), 1))
	values := make([]float32, n)
	for i := range values {
		values[i] = m.std * float32(rnd.NormFloat64())
	}
	if err := tensor.ToBytes(data, values, dense); err != nil {
		t.Fatal(err)
	}
	return data
}

// writeFile writes a safetensors file of the tensors.
func writeFile(t testing.TB, path string, metadata map[string]string, tensors ...made) {
	t.Helper()
	specs := make([]safetensors.Spec, len(tensors))
	for i, m := range tensors {
		specs[i] = safetensors.Spec{Name: m.name, Dtype: m.dtype, Shape: m.shape}
	}
	layout, err := safetensors.NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	for _, m := range tensors {
		offset, _ := layout.Offset(m.name)
		copy(data[offset:], m.bytes(t))
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeModel writes a checkpoint directory, with an index if there are several shards, and
// returns its path.
func writeModel(t testing.TB, shards map[string][]made, config string) string {
	t.Helper()
	dir := t.TempDir()
	index := safetensors.Index{WeightMap: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		writeFile(t, filepath.Join(dir, name), map[string]string{"format": "pt", "kept": "yes"}, shards[name]...)
		for _, m := range shards[name] {
			index.WeightMap[m.name] = name
		}
	}
	if config != "" {
		writeText(t, filepath.Join(dir, hf.ConfigName), config)
	}
	if len(shards) > 1 {
		data, err := index.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		writeText(t, filepath.Join(dir, safetensors.IndexName), string(data))
	}
	return dir
}

func writeText(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openModel opens a checkpoint and closes it at the end of the test.
func openModel(t testing.TB, arg string) *checkpoint.Model {
	t.Helper()
	source, err := sample.Open(context.Background(), arg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return checkpoint.Read(source)
}

// unmarshal reads a JSON file.
func unmarshal(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// A relabeling holds the arguments of PlanRelabel.
type relabeling struct {
	Convention, Scheme string
	Calibration        *Calibration
}

func planRelabel(src *checkpoint.Model, o relabeling) (*Plan, error) {
	return PlanRelabel(context.Background(), src.Source, o.Convention, o.Scheme, o.Calibration)
}
