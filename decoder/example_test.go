package decoder_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/decoder"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// Run the forward and backward pass of a small model in MXFP8 with its first and last layer in BF16,
// then quantize its weights.
func Example() {
	mxfp8, err := recipe.Lookup("mxfp8")
	if err != nil {
		log.Fatal(err)
	}
	config := decoder.Config{HiddenSize: 64, IntermediateSize: 128, NumHiddenLayers: 4, NumAttentionHeads: 2}
	m, err := decoder.New(config, decoder.Options{FirstBF16: 1, LastBF16: 1}, 1)
	if err != nil {
		log.Fatal(err)
	}
	text := []byte("one token predicts the next one, and")
	var tokens, targets []int32
	for i := range 32 {
		tokens, targets = append(tokens, int32(text[i])), append(targets, int32(text[i+1]))
	}
	scope := decoder.Scope{Recipe: mxfp8}
	loss, err := m.Train(&scope, tokens, targets, 1, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parameters, loss %.1f nats per byte\n", m.Config.Parameters(), loss)

	low, err := m.Quantize(quant.Quantizer{Format: quant.MXFP4}, false, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes of weights in training, %d afterwards\n", m.WeightBytes(), low.WeightBytes())
	// Output:
	// 197184 parameters, loss 5.6 nats per byte
	// 596096 bytes of weights in training, 470656 afterwards
}
