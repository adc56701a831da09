"""The cross-entropy of a text under checkpoints by mlx-lm, for architectures_loss_test.go:
python run_mlx.py TEXT CONTEXT RESULT DIRECTORY...

RESULT becomes a JSON object: for each DIRECTORY the nats per byte, or the error of mlx-lm.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

text, context, result, directories = open(sys.argv[1], "rb").read(), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
mx.set_default_device(mx.cpu)
windows = np.array([list(text[i : i + context]) for i in range(0, len(text) - context + 1, context)])


def nats(directory):
    model, _ = load_model(Path(directory))
    model.set_dtype(mx.float32)  # codes and scales are integers, and stay
    total, count = 0.0, 0
    for window in windows:
        logits = np.array(model(mx.array(window[None]))[0].astype(mx.float32)).astype(np.float64)[:-1]
        logits -= logits.max(axis=1, keepdims=True)
        total += (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(context - 1), window[1:]]).sum()
        count += context - 1
    return {"nats": total / count} if np.isfinite(total) else {"rejected": str(total)}


results = {}
for directory in directories:
    try:
        results[directory] = nats(directory)
    except Exception as e:
        results[directory] = {"rejected": f"{type(e).__name__}: {e}"}
with open(result, "w") as f:
    json.dump(results, f)
