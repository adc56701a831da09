package study

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/internal/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/llama"
)

// ActivationsText describes in a line how activations are quantized, as llama.Model.ActivationScales
// counts it. It returns "" if they are not.
func ActivationsText(stored, perToken, caches int) string {
	if stored+perToken+caches == 0 {
		return ""
	}
	return fmt.Sprintf("activations: %s with stored scales, %d with scales per token; FP8 KV cache in %s\n",
		cli.Counted(stored, "weight"), perToken, cli.Counted(caches, "layer"))
}

// EvalDocument is what eval measured, as JSON.
type EvalDocument struct {
	Model       string `json:"model"`
	Quantized   bool   `json:"quantized"`
	Activations bool   `json:"activations"`

	// What quantizes activations: weights whose input has a stored scale, weights whose
	// input has scales of each token's own, and attentions with an FP8 KV cache.
	StoredScales int `json:"stored_activation_scales"`
	TokenScales  int `json:"token_activation_scales"`
	KVCaches     int `json:"fp8_kv_caches"`

	Data        []string   `json:"data"`
	Tokens      int        `json:"tokens"`
	Sequence    int        `json:"sequence"`
	Loss        cli.Number `json:"loss"` // nats per byte
	Perplexity  cli.Number `json:"perplexity"`
	BitsPerByte cli.Number `json:"bits_per_byte"`
	Seconds     float64    `json:"seconds"`
}

// LoadModel reads a model of bytes.
func LoadModel(dir string, o llama.LoadOptions) (*llama.Model, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() && strings.HasSuffix(dir, llamacpp.Suffix) {
		return nil, fmt.Errorf("%s: a GGUF file cannot be computed with: decode it with microscale dequantize %s %s, and put the config.json of the model beside that", cli.Printable(dir), cli.Printable(dir), filepath.Join("DIR", "model.safetensors"))
	}
	m, err := llama.Load(dir, o)
	if err != nil {
		return nil, err
	}
	if err := m.Config.RequireBytes(); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}
