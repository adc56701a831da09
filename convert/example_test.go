package convert_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// checkpoints returns a directory with a small checkpoint, model.
func checkpoints() (dir string) {
	dir, err := os.MkdirTemp("", "convert")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "model"), 0o777)
	}
	if err == nil {
		err = sample.Write(context.Background(), filepath.Join(dir, "model"))
	}
	if err != nil {
		log.Fatal(err)
	}
	return dir
}

// Quantize a checkpoint to NVFP4 for vLLM, and verify the result.
func Example() {
	dir := checkpoints()
	defer os.RemoveAll(dir)
	ctx := context.Background()

	source, err := convert.Open(filepath.Join(dir, "model"))
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(context.Background(), source, convert.QuantizeOptions{
		Quantizer:  quant.Quantizer{Format: quant.NVFP4},
		Convention: "compressed-tensors",
		Scheme:     "NVFP4A16",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Count(convert.Quantize), "weights in", plan.Format, "as", plan.Convention, plan.Scheme)
	for _, d := range slices.Collect(plan.Decisions())[:3] {
		fmt.Printf("  %s %s: %d → %d bytes %q\n", d.Action, d.Name, d.SourceBytes, d.Bytes, d.Reason)
	}

	result, err := plan.Run(ctx, filepath.Join(dir, "nvfp4"), convert.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: SQNR %.1f dB\n", result.Tensors[2].Name, result.Tensors[2].Result.SQNR)

	written, err := convert.Open(filepath.Join(dir, "nvfp4"))
	if err != nil {
		log.Fatal(err)
	}
	defer written.Close()
	report, err := verify.Compare(ctx, source, written, verify.Options{Clients: []string{"vllm"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("verified:", report.OK())
	// Output:
	// 42 weights in nvfp4 as compressed-tensors NVFP4A16
	//   copy model.embed_tokens.weight: 294912 → 294912 bytes "embedding"
	//   copy model.layers.0.input_layernorm.weight: 768 → 768 bytes "has 1 dimension"
	//   quantize model.layers.0.mlp.down_proj.weight: 786432 → 221188 bytes ""
	// model.layers.0.mlp.down_proj.weight: SQNR 20.7 dB
	// verified: true
}

// Two workers, usually on two machines, quantize a checkpoint together. Merge joins their
// parts.
func ExampleMerge() {
	dir := checkpoints()
	defer os.RemoveAll(dir)
	dst := filepath.Join(dir, "mxfp8")
	for worker := range 2 {
		source, err := convert.Open(filepath.Join(dir, "model"))
		if err != nil {
			log.Fatal(err)
		}
		plan, err := convert.PlanQuantize(context.Background(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
		if err != nil {
			log.Fatal(err)
		}
		part, err := plan.Worker(worker, 2)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := part.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
			log.Fatal(err)
		}
		fmt.Println("worker", worker, "quantized", part.Count(convert.Quantize), "weights")
		source.Close()
	}
	result, err := convert.Merge(context.Background(), dst, convert.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(result.Tensors), "weights")
	// Output:
	// worker 0 quantized 22 weights
	// worker 1 quantized 20 weights
	// 57 weights
}

// Store a quantized checkpoint in another convention, without changing a code, and decode it.
func ExamplePlanRelabel() {
	dir := checkpoints()
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }

	plan := func(src string, of func(path string) (*convert.Plan, error), dst string) {
		p, err := of(at(src))
		if err != nil {
			log.Fatal(err)
		}
		defer p.Source().Close()
		if _, err := p.Run(context.Background(), at(dst), convert.RunOptions{}); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s → %s: %d relabeled, %d decoded\n", src, dst, p.Count(convert.Relabel), p.Count(convert.Decode))
	}
	plan("model", func(path string) (*convert.Plan, error) {
		source, err := convert.Open(path)
		if err != nil {
			return nil, err
		}
		return convert.PlanQuantize(context.Background(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}})
	}, "mxfp4")
	plan("mxfp4", func(path string) (*convert.Plan, error) {
		source, err := convert.Open(path)
		if err != nil {
			return nil, err
		}
		return convert.PlanRelabel(context.Background(), source, "mlx", "", nil)
	}, "mxfp4-mlx")
	plan("mxfp4-mlx", func(path string) (*convert.Plan, error) {
		source, err := convert.Open(path)
		if err != nil {
			return nil, err
		}
		return convert.PlanDequantize(context.Background(), source, safetensors.BF16)
	}, "decoded")
	// Output:
	// model → mxfp4: 0 relabeled, 0 decoded
	// mxfp4 → mxfp4-mlx: 42 relabeled, 0 decoded
	// mxfp4-mlx → decoded: 0 relabeled, 42 decoded
}
