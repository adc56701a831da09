"""Loads the checkpoints of conformance/checkpoints with mlx-lm, as conformance_clients.py does with transformers:

    python conformance_mlx.py PROGRAM RESULT DIRECTORY...

Weights of other values are counted by the products of the modules with unit vectors.
"""

import sys

import conformance_clients
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.utils import load_model


def compare(directory, values):
    want = {name.removesuffix(".weight"): p.detach().float().numpy() for name, p in values.named_parameters() if p.dim() == 2}
    try:
        model, _ = load_model(directory)
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    tokens = mx.array(np.arange(64).reshape(2, 32) * 7 % values.config.vocab_size)
    logits = model(tokens).astype(mx.float32)
    loss = nn.losses.cross_entropy(logits[:, :-1], tokens[:, 1:], reduction="mean").item()
    other = 0
    for name, module in model.named_modules():
        if name in want and "embed" not in name:
            got = np.array(module(mx.eye(want[name].shape[1]).astype(mx.bfloat16)).astype(mx.float32)).T
            other += not np.allclose(got, want[name], rtol=2**-7, atol=0)
    return {"other": other, "report": [], "loss": str(loss)}


if __name__ == "__main__":
    conformance_clients.main(sys.argv[1], sys.argv[2], sys.argv[3:], compare)
