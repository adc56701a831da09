package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/train"
)

// A mixture is a small byte-level model with four experts, two of which are active per token.
type mixture struct {
	architecture string
	config       string             // additional members
	layer        map[string][]int64 // additional tensors of a layer, and those of expert 0
	experts      string             // module of the experts
	parts        map[string][]int64 // of an expert
}

const (
	expertCount = 4
	expertSize  = 64
	mixtureSize = 128
	sharedSize  = 192
)

var qwenExpert = map[string][]int64{"gate_proj": {expertSize, mixtureSize}, "up_proj": {expertSize, mixtureSize},
	"down_proj": {mixtureSize, expertSize}}

var mixtures = []mixture{
	{"MixtralForCausalLM", `"model_type": "mixtral", "intermediate_size": 64, "num_local_experts": 4`,
		map[string][]int64{"block_sparse_moe.gate.weight": {expertCount, mixtureSize}}, "block_sparse_moe.experts",
		map[string][]int64{"w1": {expertSize, mixtureSize}, "w2": {mixtureSize, expertSize}, "w3": {expertSize, mixtureSize}}},
	{"Qwen2MoeForCausalLM", `"model_type": "qwen2_moe", "intermediate_size": 256, "num_experts": 4, "moe_intermediate_size": 64, ` +
		`"shared_expert_intermediate_size": 192, "norm_topk_prob": false`,
		map[string][]int64{"mlp.gate.weight": {expertCount, mixtureSize}, "mlp.shared_expert_gate.weight": {1, mixtureSize},
			"mlp.shared_expert.gate_proj.weight": {sharedSize, mixtureSize}, "mlp.shared_expert.up_proj.weight": {sharedSize, mixtureSize},
			"mlp.shared_expert.down_proj.weight": {mixtureSize, sharedSize},
			"self_attn.q_proj.bias":              {128}, "self_attn.k_proj.bias": {64}, "self_attn.v_proj.bias": {64}}, "mlp.experts", qwenExpert},
	{"Qwen3MoeForCausalLM", `"model_type": "qwen3_moe", "intermediate_size": 256, "num_experts": 4, "moe_intermediate_size": 64, ` +
		`"norm_topk_prob": true, "head_dim": 32`,
		map[string][]int64{"mlp.gate.weight": {expertCount, mixtureSize}, "self_attn.q_norm.weight": {32}, "self_attn.k_norm.weight": {32}},
		"mlp.experts", qwenExpert},
}

// write makes a checkpoint of random BF16 weights. Expert e has the weights of expert e + roll.
func (m mixture) write(t *testing.T, dir string, roll int) {
	t.Helper()
	shapes := map[string][]int64{"model.embed_tokens.weight": {256, mixtureSize}, "lm_head.weight": {256, mixtureSize},
		"model.norm.weight": {mixtureSize}}
	for i := range 2 {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for name, shape := range map[string][]int64{
			"input_layernorm.weight": {mixtureSize}, "post_attention_layernorm.weight": {mixtureSize}, "self_attn.q_proj.weight": {128, mixtureSize},
			"self_attn.k_proj.weight": {64, mixtureSize}, "self_attn.v_proj.weight": {64, mixtureSize}, "self_attn.o_proj.weight": {mixtureSize,
				128},
		} {
			shapes[layer+name] = shape
		}
		for name, shape := range m.layer {
			shapes[layer+name] = shape
		}
		for e := range expertCount {
			for name, shape := range m.parts {
				shapes[fmt.Sprintf("%s%s.%d.%s.weight", layer, m.experts, e, name)] = shape
			}
		}
	}
	config := fmt.Sprintf(
		`{"architectures": [%q], %s, "torch_dtype": "bfloat16", "vocab_size": 256, "hidden_size": %d, "num_hidden_layers": 2,
			"num_attention_heads": 4,
		"num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
		"num_experts_per_tok": 2,
		"bos_token_id": null, "eos_token_id": null, "tie_word_embeddings": false, "microscale": {"vocabulary": "bytes"}}`, m.architecture,
		m.config, mixtureSize)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	var tensors []namedTensor
	for name, shape := range shapes {
		seed := fnv.New64()
		fmt.Fprint(seed, m.rolled(name, roll))
		r, n := rand.New(rand.NewPCG(seed.Sum64(), 0)), 1
		for _, d := range shape {
			n *= int(d)
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(r.NormFloat64() / math.Sqrt(mixtureSize))
			if strings.HasSuffix(name, ".gate.weight") {
				values[i] *= 8 // so that few experts are chosen by what rounding leaves
			}
			if len(shape) == 1 && filepath.Ext(name) == ".weight" {
				values[i] = 1 + values[i] // of a norm
			}
		}
		x := namedTensor{safetensors.Spec{Name: name, Dtype: safetensors.BF16, Shape: shape}, make([]byte, 2*n)}
		if err := tensor.ToBytes(x.data, values, format.BF16); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x)
	}
	slices.SortFunc(tensors, func(a, b namedTensor) int { return cmp.Compare(a.Name, b.Name) })
	writeTensors(t, filepath.Join(dir, "model.safetensors"), tensors)
}

// rolled returns the name of the same tensor in the expert at distance roll.
func (m mixture) rolled(name string, by int) string {
	before, after, ok := strings.Cut(name, m.experts+".")
	if !ok || by == 0 {
		return name
	}
	e, part, _ := strings.Cut(after, ".")
	n, _ := strconv.Atoi(e)
	return fmt.Sprintf("%s%s.%d.%s", before, m.experts, (n+by)%expertCount, part)
}

// decoded writes the values of a quantized checkpoint in F32.
func decoded(t *testing.T, dir, dst string) {
	t.Helper()
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanDequantize(t.Context(), source, safetensors.F32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestTorchLlamaCPPExperts: llama.cpp runs our files of mixtures of experts with the
// cross-entropy of transformers for the decoded values.
func TestTorchLlamaCPPExperts(t *testing.T) {
	torch := withTorch(t, "transformers and llama.cpp are not compared on mixtures of experts", transformers4...)
	llamaCPP := built(t, llamaCPPPackage)
	const window = 256
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	_, validation := corpus.Text()
	root := t.TempDir()
	input, result := filepath.Join(root, "text"), filepath.Join(root, "torch.json")
	if err := os.WriteFile(input, validation[:4096], 0o666); err != nil {
		t.Fatal(err)
	}
	arguments := []string{input, fmt.Sprint(window), result}
	type file struct {
		of     mixture
		format quant.Format
		source string // the checkpoint
		values string // of the codes
		other  string // the checkpoint with its experts in another order
	}
	files := map[string]file{}
	for _, m := range mixtures {
		source := filepath.Join(root, m.architecture)
		m.write(t, source, 0)
		other := filepath.Join(root, m.architecture+"-other")
		m.write(t, other, 1)
		arguments = append(arguments, other)
		for _, f := range ggufFormats {
			path, values := filepath.Join(root, m.architecture+"-"+f.Name+".gguf"), source
			by := profile.For(f)
			if f.Global && m.architecture == "Qwen2MoeForCausalLM" { // a global scale is an error
				if by, err = profile.Lookup("ggml"); err != nil {
					t.Fatal(err)
				}
			}
			writtenBy(t, source, path, by, f, "gguf")
			if f.Scaled() {
				codes := filepath.Join(root, m.architecture+"-"+f.Name)
				values = codes + "-values"
				writtenBy(t, source, codes, by, f, "plain")
				decoded(t, codes, values)
			}
			files[path] = file{m, f, source, values, other}
			arguments = append(arguments, values)
		}
	}
	script(t, torch, "nats.py", arguments...)
	theirs := map[string]float64{}
	readJSON(t, result, &theirs)
	for path, f := range files {
		t.Run(f.of.architecture+"/format="+f.format.Name, func(t *testing.T) {
			result := filepath.Join(t.TempDir(), "result.json")
			script(t, llamaCPP, "run_llamacpp.py", path, input, fmt.Sprint(window), result)
			var got struct {
				Nats float64 `json:"nats"`
			}
			readJSON(t, result, &got)
			want, misplaced := theirs[f.values], math.Abs(theirs[f.other]-theirs[f.source])
			t.Logf("%s %s: llama.cpp %.5f, transformers %.5f nats per byte; experts in another order make a difference of %.5f", f.of.architecture,
				f.format, got.Nats, want, misplaced)
			// llama.cpp quantizes activations to 8 bits, as in TestLlamaCPP. If two experts
			// score about equally, it may choose another than transformers does. The remaining
			// difference is a small part of the effect of a misplaced tensor.
			if d := math.Abs(got.Nats - want); !(d < misplaced/10) || misplaced < 0.02 {
				t.Errorf("%g nats apart; experts in another order %g", d, misplaced)
			}
		})
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
