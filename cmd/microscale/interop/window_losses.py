"""The mean losses of a decoder in F32 on windows of 512 tokens, for smollm2_test.go:
python window_losses.py DIRECTORY TOKENS RESULT

TOKENS is a JSON list. The JSON file RESULT has the mean negative log-likelihood, in nats, of the positions with
at least 256 before them (second) and of all.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)  # threads that wait for each other are slow on a busy machine
directory, tokens, result = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3]
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
losses = []
with torch.no_grad():
    for i in range(0, len(tokens) - 511, 512):
        window = torch.tensor(tokens[i : i + 512])
        p = torch.log_softmax(model(window[None]).logits[0, :-1].double(), dim=-1)
        losses.append(-p.gather(1, window[1:, None])[:, 0])
losses = torch.stack(losses)
json.dump({"second": losses[:, 256:].mean().item(), "all": losses.mean().item()}, open(result, "w"))
