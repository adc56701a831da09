"""Small models of the mixtures of experts in transformers, made from their configuration classes and saved as transformers saves them:
ROOT/TYPE. ROOT/TYPE/expected.json names the tensors that hold all experts of a layer, and the weights of the modules that transformers
calls routers or gates."""

import json
import os
import re
import sys
import warnings

import torch
import transformers
from safetensors import safe_open
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
EXPERTS = 8
SMALL = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 48, "moe_intermediate_size": 48, "moe_hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS, "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS, "moe_num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_k": 2, "top_k_experts": 2, "experts_per_token": 2,
    "n_group": 1, "topk_group": 1, "shared_expert_intermediate_size": 48, "moe_shared_expert_intermediate_size": 48,
    "shared_intermediate_size": 48, "n_shared_experts": 1, "num_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
    "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "max_position_embeddings": 128, "mamba_num_heads": 8,
    "mamba_head_dim": 16, "mamba_n_heads": 8, "mamba_d_state": 16, "ssm_state_size": 16, "mamba_d_conv": 4, "n_groups": 1,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "vocab_size_per_layer_input": 320, "hidden_size_per_layer_input": 16, "num_layers": 2,
    "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "sliding_window": 32,
}
COUNT = r'"(num_experts|num_local_experts|n_routed_experts|moe_num_experts)": (\d\d|[2-9])'


def shrink(cls, depth=0):
    base, keys = cls(), {}
    for key, value in SMALL.items():
        if hasattr(base, key):
            keys[key] = value
    for key, value in vars(base).items():
        if isinstance(value, PretrainedConfig) and depth < 3:
            keys[key] = shrink(type(value), depth + 1).to_dict() | {"model_type": value.model_type}
        if isinstance(value, list) and len(value) > 2 and key.endswith("types"):
            keys[key] = [value[0], value[-1]]
    try:
        return cls(**keys)
    except Exception:
        keys.pop("head_dim", None)
        return cls(**keys)


def make(config):
    for auto in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel"):
        try:
            with torch.device("meta"):
                return getattr(transformers, auto).from_config(config)
        except ValueError:
            continue
    raise ValueError("no class")


def write(kind, root):
    torch.manual_seed(0)
    model = make(shrink(CONFIG_MAPPING[kind]))
    if sum(p.numel() for p in model.parameters()) > 40e6:
        raise ValueError("too large")
    model = model.to_empty(device="cpu").to(torch.bfloat16)
    for tensor in list(model.parameters()) + list(model.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.normal_(tensor.data, std=0.05)
    model.save_pretrained(os.path.join(root, kind))
    routers = [
        f"{name}.weight" for name, module in model.named_modules()
        if re.search("Router|Gate$", type(module).__name__) and getattr(module, "weight", None) is not None and module.weight.shape[0] == EXPERTS
    ]
    with safe_open(os.path.join(root, kind, "model.safetensors"), "pt") as f:
        shapes = {name: f.get_slice(name).get_shape() for name in f.keys()}
    stacks = [name for name, shape in shapes.items() if len(shape) == 3 and shape[0] == EXPERTS and min(shape[1:]) >= 16]
    with open(os.path.join(root, kind, "expected.json"), "w") as f:
        json.dump({"stacks": stacks, "routers": [name for name in routers if name in shapes]}, f)


root = sys.argv[1]
for kind in sorted(CONFIG_MAPPING.keys()):
    try:
        if re.search(COUNT, json.dumps(CONFIG_MAPPING[kind]().to_dict(), default=str)):
            write(kind, root)
    except Exception as e:  # a class that these sizes do not suit, or that lacks a package
        print(f"{kind}: {type(e).__name__}: {str(e).splitlines()[0][:120] if str(e) else ''}")
