"""Loads a model in llama.cpp, generates, and computes the cross-entropy of a text, as JSON:
python run_llamacpp.py MODEL TEXT CONTEXT RESULT"""

import base64
import json
import sys

import llama_cpp
import numpy as np

default_params = llama_cpp.llama_cpp.llama_model_default_params


def without_amx():
    """Works around its AMX kernels, which execute an illegal instruction for any file with Q8_0."""
    params = default_params()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = without_amx

model, text, context, result = sys.argv[1], open(sys.argv[2], "rb").read(), int(sys.argv[3]), sys.argv[4]
m = llama_cpp.Llama(model, n_ctx=context, n_batch=context, logits_all=True, verbose=False, n_threads=1, n_threads_batch=1, seed=1)
tokens = m.tokenize(text, add_bos=False, special=False)
nats, count = 0.0, 0
for i in range(0, len(tokens) - context + 1, context):
    window = tokens[i : i + context]
    m.reset()
    m.eval(window)
    logits = np.array(m.scores[: context - 1], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(context - 1), window[1:]]
    nats += (np.log(np.exp(logits).sum(axis=1)) - chosen).sum()
    count += context - 1
m.reset()
generated = []
for token in m.generate(tokens[:64], temp=0.0):
    generated.append(token)
    if len(generated) == 32:
        break
b64 = lambda b: base64.b64encode(bytes(b)).decode()
json.dump(
    {
        "nats": nats / count,
        "bytes": b64(tokens),
        "back": b64(m.detokenize(tokens)),
        "generated": b64(m.detokenize(generated)),
        "version": llama_cpp.__version__,
    },
    open(result, "w"),
)
