package interop

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// trainedRecipes are those that BenchmarkTraining compares with PyTorch.
var trainedRecipes = []string{"bf16", "mxfp8", "mxfp4", "nvfp4"}

// BenchmarkTraining trains a model of the Llama architecture under several recipes, and with PyTorch
// in BF16 and in float32, which is faster without instructions for BF16, on one thread. They take turns; a rate is that of
// the fastest step.
func BenchmarkTraining(b *testing.B) {
	model := decoder.Config{VocabSize: 256, HiddenSize: 1024, IntermediateSize: 3072, NumHiddenLayers: 4, NumAttentionHeads: 16,
		NumKeyValueHeads: 8}
	const sequences, length, steps = 4, 512, 3
	dtypes := []string{"bf16", "f32"}
	torch := make([]*rival, len(dtypes))
	for i, dtype := range dtypes {
		torch[i] = startRival(b, rivalTorch(b))
		torch[i].ask(b, map[string]any{"by": "torch", "work": "train", "model": model, "sequences": sequences, "length": length, "dtype": dtype})
	}
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		b.Fatal(err)
	}

	fastest := map[string]float64{}
	faster := func(name string, seconds float64) {
		if before, ok := fastest[name]; !ok || seconds < before {
			fastest[name] = seconds
		}
	}
	for b.Loop() {
		for i, dtype := range dtypes {
			for range steps {
				start := time.Now()
				torch[i].ask(b, map[string]any{"times": 1})
				faster("pytorch-"+dtype, time.Since(start).Seconds())
			}
		}
		for _, name := range trainedRecipes {
			c := train.DefaultConfig()
			c.Model, c.Data, c.Threads = model, corpus, 1
			c.Steps, c.Batch, c.Sequence, c.ValidationTokens = 1+steps, sequences, length, length
			if c.Recipe, err = recipe.Lookup(name); err != nil {
				b.Fatal(err)
			}
			seconds := math.Inf(1)
			c.Progress = func(e train.Event) {
				if e.Kind == train.Step {
					seconds = min(seconds, e.Elapsed.Seconds())
				}
			}
			if _, err := train.Run(context.Background(), c); err != nil {
				b.Fatal(err)
			}
			faster(name, seconds)
		}
	}
	for name, seconds := range fastest {
		b.ReportMetric(sequences*length/seconds, name+"-tokens/s")
	}
	b.ReportMetric(0, "ns/op")
}
