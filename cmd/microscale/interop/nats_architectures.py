"""The cross-entropy of a text under checkpoints of many architectures by transformers, in nats
per byte, for architectures_loss_test.go: python nats_architectures.py TEXT CONTEXT RESULT DIRECTORY..."""

import json
import sys

import torch
from decode_architectures import load

text, context, result, directories = open(sys.argv[1], "rb").read(), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
windows = torch.tensor([list(text[i : i + context]) for i in range(0, len(text) - context + 1, context)])
nats = {}
for directory in directories:
    with torch.no_grad():
        logits = load(directory)(input_ids=windows).logits.double()
    nats[directory] = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), windows[:, 1:].reshape(-1)).item()
with open(result, "w") as f:
    json.dump(nats, f)
