package verify_test

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
	"github.com/microscale-go/microscale/verify"
)

// Quantize a checkpoint and compare the result with the source, as anybody who
// has both can do later.
func Example() {
	dir, err := os.MkdirTemp("", "verify")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	source, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	original := checkpoint.Read(source)
	plan, err := convert.PlanQuantize(original, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil {
		log.Fatal(err)
	}
	small := filepath.Join(dir, "small")
	if _, err := plan.Run(context.Background(), small, convert.RunOptions{}); err != nil {
		log.Fatal(err)
	}

	result, err := hf.Open(small)
	if err != nil {
		log.Fatal(err)
	}
	defer result.Close()
	report, err := verify.Compare(context.Background(), original, checkpoint.Read(result), verify.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("agrees:", report.OK())
	for _, t := range report.Tensors[:3] {
		fmt.Printf("%s %s %d×%d: SQNR %.1f dB, %d flushed to zero\n", t.Name, t.Format, t.Rows, t.Cols, t.Result.SQNR, t.Result.Flushed)
	}
	// Output:
	// agrees: true
	// model.embed_tokens.weight bf16 384×384: SQNR +Inf dB, 0 flushed to zero
	// model.layers.0.input_layernorm.weight bf16 1×384: SQNR +Inf dB, 0 flushed to zero
	// model.layers.0.mlp.down_proj.weight mxfp8 384×1024: SQNR 31.4 dB, 8 flushed to zero
}
