package convert_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/sample"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// Quantize a checkpoint to NVFP4, and decode the result.
func Example() {
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	source, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()

	plan, err := convert.PlanQuantize(checkpoint.Read(source), convert.QuantizeOptions{
		Quantizer: quant.Quantizer{Format: quant.NVFP4},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Count(convert.Quantize), "weights to", plan.Format, "as", plan.Convention)
	for _, d := range plan.Decisions[:3] {
		fmt.Printf("  %s: %d of %d bytes; stays because: %q\n", d.Weight.Name, d.Bytes(), d.Weight.StoredBytes(), d.Reason)
	}
	small := filepath.Join(dir, "small")
	result, err := plan.Run(context.Background(), small, convert.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range result.Tensors[:3] {
		fmt.Printf("  %s: %s, %.1f dB\n", r.Name, r.Format, r.Result.SQNR)
	}

	quantized, err := hf.Open(small)
	if err != nil {
		log.Fatal(err)
	}
	defer quantized.Close()
	back, err := convert.PlanDequantize(checkpoint.Read(quantized), safetensors.F32)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := back.Run(context.Background(), filepath.Join(dir, "back"), convert.RunOptions{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(back.Count(convert.Decode), "weights decoded")
	// Output:
	// 42 weights to nvfp4 as compressed-tensors
	//   model.embed_tokens.weight: 294912 of 294912 bytes; stays because: "embedding"
	//   model.layers.0.input_layernorm.weight: 768 of 768 bytes; stays because: "has 1 dimension"
	//   model.layers.0.mlp.down_proj.weight: 221188 of 786432 bytes; stays because: ""
	//   model.embed_tokens.weight: bf16, +Inf dB
	//   model.layers.0.input_layernorm.weight: bf16, +Inf dB
	//   model.layers.0.mlp.down_proj.weight: nvfp4, 20.7 dB
	// 42 weights decoded
}
