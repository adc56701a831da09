package decoder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

const (
	weightsName    = "model.safetensors"
	generationName = "generation_config.json"
)

const unfinishedSuffix = ".partial"

// FileNames returns the names of the files that Save writes, in order: the last one completes a model.
// unfinished are their names while they are written.
func FileNames() (saved, unfinished []string) {
	saved = []string{weightsName, generationName, hf.ConfigName}
	for _, name := range saved {
		unfinished = append(unfinished, name+unfinishedSuffix)
	}
	return saved, unfinished
}

// Save writes the model as Hugging Face's LlamaForCausalLM: config.json, generation_config.json and
// model.safetensors with weights of the given dtype, BF16 or F32. config.json names the vocabulary of
// bytes under "microscale". Save creates the directory if it does not exist. It replaces existing
// files atomically, config.json last.
func (m *Model) Save(dir string, dtype safetensors.Dtype) error {
	if err := m.trainable(); err != nil {
		return fmt.Errorf("model: save: %w", err)
	}
	if plan, err := planOf(m.Config); err != nil || !reflect.DeepEqual(plan, m.plan) {
		return family.Unsupported(errors.New("model: save: only a plain Llama can be saved"))
	}
	if dtype != safetensors.BF16 && dtype != safetensors.F32 {
		return fmt.Errorf("model: save: got dtype %s, want BF16 or F32", dtype)
	}
	config, err := marshal(m.Config, dtype.Torch())
	if err != nil {
		return err
	}
	// The vocabulary of bytes has no tokens for the beginning and the end of a text.
	generation, err := json.MarshalIndent(map[string]any{"_from_model_config": true, "bos_token_id": nil, "eos_token_id": nil}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, weightsName), func(path string) error { return m.writeWeights(path, dtype) }); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{generationName, append(generation, '\n')}, {hf.ConfigName, config}} {
		if err := replace(filepath.Join(dir, f.name), func(path string) error { return durable.WriteNew(path, f.data) }); err != nil {
			return err
		}
	}
	return nil
}

// replace atomically replaces path with the file that write writes.
func replace(path string, write func(path string) error) error {
	unfinished := path + unfinishedSuffix
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a killed run
		return err
	}
	if err := write(unfinished); err != nil {
		os.Remove(unfinished)
		return err
	}
	return os.Rename(unfinished, path)
}

// writeWeights writes the weights as a new file.
func (m *Model) writeWeights(path string, dtype safetensors.Dtype) error {
	var specs []safetensors.Spec
	for _, p := range m.Params() {
		specs = append(specs, safetensors.Spec{Name: p.Name, Dtype: dtype, Shape: shape(p)})
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	file, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	defer file.Abort()
	f, _ := dtype.Dense()
	for _, p := range m.Params() {
		data := make([]byte, len(p.Value.Data)*dtype.Bits()/8)
		if err := tensor.ToBytes(data, p.Value.Data, f); err != nil {
			return err
		}
		if err := file.WriteTensorAt(p.Name, data, 0); err != nil {
			return err
		}
	}
	return file.Close()
}

// shape returns the shape of a parameter in a file. All but weights of linear layers and embeddings are
// vectors.
func shape(p *nn.Param) []int64 {
	if !strings.HasSuffix(p.Name, ".weight") || strings.HasSuffix(p.Name, "norm.weight") {
		return []int64{int64(p.Value.Cols)}
	}
	return []int64{int64(p.Value.Rows), int64(p.Value.Cols)}
}
