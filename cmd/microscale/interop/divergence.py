"""Compares decoders with their original on windows of tokens, in F32, for divergence_test.go:
python divergence.py TOKENS CONTEXT RESULT ORIGINAL MODEL...

TOKENS is a JSON list. The JSON file RESULT has an object for each model: means over the positions of the
second halves of the windows, as llama-perplexity scores them, of the negative log-likelihood and of
KL(original || model), in nats, and the share of positions with the same most likely token.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


@torch.no_grad()
def log_probabilities(directory, windows, first):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    for window in windows:
        yield torch.log_softmax(model(window[None]).logits[0, first - 1 : -1].double(), dim=-1)


torch.set_num_threads(1)  # threads that wait for each other are slow on a busy machine
tokens, context, result, original, *models = json.load(open(sys.argv[1])), int(sys.argv[2]), *sys.argv[3:]
windows = [torch.tensor(tokens[i : i + context]) for i in range(0, len(tokens) - context + 1, context)]
first = context // 2 + 1
originals = list(log_probabilities(original, windows, first))
results = []
for model in models:
    nll, kl, same = [], [], []
    for window, p, q in zip(windows, originals, log_probabilities(model, windows, first)):
        nll.append(-q.gather(1, window[first:, None])[:, 0])
        kl.append((p.exp() * (p - q)).sum(1))
        same.append((p.argmax(1) == q.argmax(1)).double())
    nll, kl, same = torch.cat(nll), torch.cat(kl), torch.cat(same)
    results.append({"nll": nll.mean().item(), "kl": kl.mean().item(), "max": kl.max().item(), "same_top": same.mean().item(), "scored": len(kl)})
json.dump(results, open(result, "w"))
