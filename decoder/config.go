package decoder

import (
	"encoding/json"

	"github.com/microscale-go/microscale/family"
)

// Config is the architecture of a model, with the names of Hugging Face's LlamaConfig. Zero fields
// have the defaults of WithDefaults.
type Config = family.Config

// published is the config.json of a saved model: Config and the other fields of transformers' LlamaConfig.
type published struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Config
	HiddenAct     string          `json:"hidden_act"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	RopeScaling   json.RawMessage `json:"rope_scaling"`
	BOS           *int            `json:"bos_token_id"`
	EOS           *int            `json:"eos_token_id"`
	TorchDtype    string          `json:"torch_dtype,omitempty"`
}

// trainedFamily is the row of the models that this package trains and saves.
var trainedFamily = family.Lookup("llama")

// marshal returns the config.json of a model with weights of the given dtype.
func marshal(c Config, torchDtype string) ([]byte, error) {
	data, err := json.MarshalIndent(published{
		Architectures: []string{trainedFamily.Class}, ModelType: trainedFamily.Types[0], Config: c, HiddenAct: "silu",
		RopeScaling: json.RawMessage("null"), TorchDtype: torchDtype,
	}, "", "  ")
	return append(data, '\n'), err
}

// planOf returns the plan of a model that is trained.
func planOf(c Config) (*Plan, error) { return compile(trainedFamily, &family.Settings{Config: c}) }
