"""Compares the values that package gguf decodes from a GGUF file with those that
another program wrote: python read_gguf.py FILE VALUES, and VALUES.json beside them."""

import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

INSIDE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def renamed(name):
    module = name.removesuffix(".weight")
    if module in OUTSIDE:
        return OUTSIDE[module]
    _, _, layer, inside = module.split(".", 3)
    return f"blk.{layer}.{INSIDE[inside]}"


def permuted(x, head):
    """Rows of queries and keys in the order of llama.cpp's converter."""
    heads = x.shape[0] // head
    return x.reshape(heads, 2, head // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


reader = GGUFReader(sys.argv[1])
tensors = {t.name: t for t in reader.tensors}
head = int(reader.fields["llama.attention.key_length"].contents())
assert reader.fields["general.architecture"].contents() == "llama"
assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == 256
values = np.fromfile(sys.argv[2], np.float32)
expected = json.load(open(sys.argv[2] + ".json"))
seen = set()
for name, at in expected.items():
    module = renamed(name)
    t = tensors[module + ".weight"]
    got = dequantize(t.data, t.tensor_type).reshape(at["shape"])
    size = int(np.prod(at["shape"]))
    want = values[at["offset"] // 4 :][:size].reshape(at["shape"])
    if module.endswith((".attn_q", ".attn_k")):
        want = permuted(want, head)
    # -0 and 0 are the same value: ggml's table has no -0.
    assert np.array_equal(got, want), f"{name}: other values"
    seen.add(t.name)
    scale = tensors.get(module + ".scale")
    if scale is not None:
        assert scale.data.shape == (1,) and scale.data[0] == np.float32(at["global"]), f"{name}: another global scale"
        seen.add(scale.name)
    else:
        assert at["global"] == 1, f"{name}: its global scale is missing"
assert seen == set(tensors), f"unknown tensors {set(tensors) - seen}"
