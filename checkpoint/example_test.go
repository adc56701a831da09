package checkpoint_test

import (
	"context"
	"fmt"
	"log"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
)

// List the tensors of a 300×256 weight in every convention that supports NVFP4.
func ExampleConvention_Stored() {
	for _, c := range checkpoint.Conventions() {
		if !c.Holds(quant.NVFP4) {
			continue
		}
		fmt.Println(c)
		for _, s := range c.Stored(quant.NVFP4, "l.0.up_proj.weight", []int64{300, 256}) {
			fmt.Println(" ", s.Name, s.Dtype, s.Shape)
		}
	}
	// Output:
	// compressed-tensors
	//   l.0.up_proj.weight_packed U8 [300 128]
	//   l.0.up_proj.weight_scale F8_E4M3 [300 16]
	//   l.0.up_proj.weight_global_scale F32 [1]
	// modelopt
	//   l.0.up_proj.weight U8 [300 128]
	//   l.0.up_proj.weight_scale F8_E4M3 [300 16]
	//   l.0.up_proj.weight_scale_2 F32 []
	// mlx
	//   l.0.up_proj.weight U32 [300 32]
	//   l.0.up_proj.scales U8 [300 16]
	// gguf
	//   l.0.up_proj.weight U8 [300 144]
	//   l.0.up_proj.scale F32 [1]
	// plain
	//   l.0.up_proj.weight U8 [300 128]
	//   l.0.up_proj.weight_scale F8_E4M3 [300 16]
	//   l.0.up_proj.weight_scale_2 F32 [1]
}

// Read a checkpoint and decode the beginning of one weight. Quantized weights are read in the
// same way.
func ExampleRead() {
	source, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()

	model := checkpoint.Read(source)
	fmt.Println(len(model.Weights), "weights,", model.Quantized(), "quantized,", len(model.Problems), "problems")
	w, _ := model.Lookup("model.layers.0.mlp.up_proj.weight")
	x, err := w.Read(0, 2) // rows
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.FormatName(), w.Shape, x.Row(1)[:3])
	// Output:
	// 57 weights, 0 quantized, 0 problems
	// bf16 [1024 384] [0.02734375 -0.048583984 0.004486084]
}

// Process all tiles of two weights on all processors, and print the results in the order of the
// tiles.
func ExampleJob() {
	tilings := []checkpoint.Tiling{
		{Rows: 300, Cols: 64, TileRows: 128, TileCols: 64},
		{Rows: 1, Cols: 1000, TileRows: 1, TileCols: 512},
	}
	job := checkpoint.Job[int]{
		Weights: len(tilings),
		Tiling:  func(weight int) checkpoint.Tiling { return tilings[weight] },
		Work: func(t checkpoint.Tile) (int, error) {
			return (t.To - t.From) * (t.ToCol - t.FromCol), nil
		},
		Done: func(t checkpoint.Tile, elements int) {
			fmt.Printf("weight %d, rows %d to %d, columns %d to %d: %d elements\n", t.Weight, t.From, t.To, t.FromCol, t.ToCol, elements)
		},
	}
	if err := job.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// weight 0, rows 0 to 128, columns 0 to 64: 8192 elements
	// weight 0, rows 128 to 256, columns 0 to 64: 8192 elements
	// weight 0, rows 256 to 300, columns 0 to 64: 2816 elements
	// weight 1, rows 0 to 1, columns 0 to 512: 512 elements
	// weight 1, rows 0 to 1, columns 512 to 1000: 488 elements
}
