package flags

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation/sampling"
)

// AddSampling adds the flags of package sampling to cmd, with the defaults of llama.cpp. The returned
// function returns their values.
func AddSampling(cmd *cobra.Command) func() (sampling.Options, error) {
	f := cmd.Flags()
	temperature := f.Float64("temperature", 0.8, "sampling temperature `T`; 0: always the most likely token")
	topK := f.Uint("top-k", 40, "sample from the `N` most likely tokens; 0: from all")
	topP := f.Float64("top-p", 0.95, "sample from the most likely tokens with total probability `P`; 1: from all; 0: the most likely one")
	minP := f.Float64("min-p", 0.05, "sample from tokens with at least `P` times the highest probability; 0: from all")
	penalty := f.Float64("repeat-penalty", 1, "make the last 64 tokens less likely by the factor `F`; 1: no penalty")
	seed := f.Uint64("seed", 1, "sampling seed `N`")
	return func() (sampling.Options, error) {
		o := sampling.Options{Temperature: *temperature, TopK: int(*topK), TopP: *topP, MinP: *minP, RepeatPenalty: *penalty, Seed: *seed}
		if err := o.Validate(); err != nil {
			return o, show.Misuse("%v", err)
		}
		return o, nil
	}
}
