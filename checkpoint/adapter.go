package checkpoint

import (
	"regexp"
	"slices"
)

// adapterTensors matches tensors of adapters: PEFT, LoRA and its variants, IA3 and prompt
// tuning.
var adapterTensors = regexp.MustCompile(`^base_model\.model\.|(^|[._])lora_(A|B|E|up|down|embedding_A|embedding_B|magnitude_vector)(\.|` +
	`$)|\.ia3_l|\.hada_w\d|\.lokr_w\d|\.oft_[rsR]|\.vera_lambda_|^prompt_embeddings$|^prompt_encoder\.`)

// Adapter returns the name of the first tensor if the checkpoint is an adapter, which is not a
// model by itself; "" otherwise. Every tensor of an adapter has a name that libraries of
// adapters give.
func (m *Model) Adapter() string {
	isOther := func(w *Weight) bool { return !adapterTensors.MatchString(w.Name) }
	if len(m.Weights) == 0 || slices.ContainsFunc(m.Weights, isOther) {
		return ""
	}
	return m.Weights[0].Name
}
