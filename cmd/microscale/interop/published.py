"""What transformers' configuration classes make of the configurations of published models: FILE (one JSON object a line, with model and
config) as {model: numbers} in OUT. Models of unknown types are left out."""

import json
import sys

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

NUMBERS = [
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
]


def theta(config):
    r = config.rope_parameters or {}
    return (r.get("full_attention") or r).get("rope_theta")


all = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    config = row["config"].get("text_config") or row["config"]
    if "refused" in row or config.get("model_type") not in CONFIG_MAPPING:
        continue
    c = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    numbers = {key: getattr(c, key) for key in NUMBERS}
    numbers["head_dim"] = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    numbers["rope_theta"] = theta(c)
    kinds = getattr(c, "layer_types", None) or []
    numbers["windows"] = kinds.count("sliding_attention")
    all[row["model"]] = numbers
with open(sys.argv[2], "w") as f:
    json.dump(all, f)
