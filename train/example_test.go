package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// Train the same model on the same text under two recipes.
func ExampleRun() {
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"bf16", "mxfp8"} {
		c := train.DefaultConfig()
		c.Model = decoder.Config{VocabSize: 256, HiddenSize: 32, IntermediateSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 2}
		c.Steps, c.Batch, c.Sequence, c.ValidationTokens, c.LearningRate = 20, 4, 64, 1024, 1e-2
		c.Data = corpus
		if c.Recipe, err = recipe.Lookup(name); err != nil {
			log.Fatal(err)
		}
		r, err := train.Run(context.Background(), c)
		if err != nil {
			log.Fatal(err)
		}
		_, validation := r.FinalLoss()
		fmt.Printf("%-5s  from %.1f to %.1f nats per byte\n", name, r.TrainLoss[0], validation)
	}
	// Output:
	// bf16   from 5.6 to 2.7 nats per byte
	// mxfp8  from 5.6 to 2.7 nats per byte
}
