"""Small models whose experts transformers holds in one tensor a layer, for joinedexperts_test.go:

    python joined_experts.py make DIRECTORY            writes DIRECTORY/TYPE
    python joined_experts.py load RESULT DIRECTORY...  loads DIRECTORY/source and DIRECTORY/decoded

RESULT becomes a JSON object: for each DIRECTORY the number of parameters and the largest difference of one, as a part of the
largest magnitude of its tensor, or the error of transformers.
"""

import json
import os
import sys

import torch
import transformers
from decode_architectures import load

dense = dict(
    vocab_size=256, hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False,
    num_local_experts=4, num_experts_per_tok=2,
)
models = {
    "granitemoe": ("GraniteMoeForCausalLM", {}),
    "llama4_text": ("Llama4ForCausalLM", dict(intermediate_size_mlp=64, interleave_moe_layer_step=1)),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", dict(shared_intermediate_size=64)),
}


def make(root):
    for name, (cls, members) in models.items():
        torch.manual_seed(1)
        cls = getattr(transformers, cls)
        model = cls(cls.config_class(**dense, **members))
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() >= 2:
                    p.normal_(0, 0.1)
        model.to(torch.bfloat16).save_pretrained(os.path.join(root, name))


def compare(directory):
    try:
        got = dict(load(f"{directory}/decoded").named_parameters())
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    result = {"parameters": 0, "experts": 0, "error": 0.0}
    for name, want in load(f"{directory}/source").named_parameters():
        assert got[name].shape == want.shape, name
        result["parameters"] += 1
        result["experts"] += want.dim() == 3
        result["error"] = max(result["error"], ((got[name] - want).abs().max() / want.abs().max()).item())
    return result


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    with open(sys.argv[2], "w") as f:
        json.dump({directory: compare(directory) for directory in sys.argv[3:]}, f)
