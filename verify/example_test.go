package verify_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// Compare a quantized checkpoint with its source, and ask whether a client can load it.
func Example() {
	dir, err := os.MkdirTemp("", "verify")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	model, quantized := filepath.Join(dir, "model"), filepath.Join(dir, "mxfp8")
	if err := makeCheckpoints(model, quantized); err != nil {
		log.Fatal(err)
	}

	src, err := convert.Open(model)
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	dst, err := convert.Open(quantized)
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Close()
	report, err := verify.Compare(context.Background(), src, dst, verify.Options{Clients: []string{"vllm", "mlx"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors[:3] {
		fmt.Printf("%s %s %d×%d: SQNR %.1f dB, %d flushed to zero\n", t.Name, t.Format, t.Rows, t.Cols, t.Result.SQNR, t.Result.Flushed)
	}
	for _, p := range report.Problems {
		fmt.Println("problem:", p)
	}
	// Output:
	// model.embed_tokens.weight bf16 384×384: SQNR +Inf dB, 0 flushed to zero
	// model.layers.0.input_layernorm.weight bf16 1×384: SQNR +Inf dB, 0 flushed to zero
	// model.layers.0.mlp.down_proj.weight mxfp8 384×1024: SQNR 31.4 dB, 8 flushed to zero
	// problem: mlx: it does not read compressed-tensors MXFP8: it reads mlx mxfp8, to which it can be converted
}

// makeCheckpoints writes a small checkpoint and quantizes it.
func makeCheckpoints(model, quantized string) error {
	if err := os.Mkdir(model, 0o777); err != nil {
		return err
	}
	if err := sample.Write(context.Background(), model); err != nil {
		return err
	}
	source, err := convert.Open(model)
	if err != nil {
		return err
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(context.Background(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil {
		return err
	}
	_, err = plan.Run(context.Background(), quantized, convert.RunOptions{})
	return err
}
