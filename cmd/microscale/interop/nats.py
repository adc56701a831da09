"""The cross-entropy of a text under byte-level models in transformers, in nats per byte, as JSON:
python nats.py TEXT CONTEXT RESULT DIRECTORY..."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, logging

text, context, result, directories = open(sys.argv[1], "rb").read(), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
logging.set_verbosity_error()
windows = torch.tensor([list(text[i : i + context]) for i in range(0, len(text) - context + 1, context)])
nats = {}
for directory in directories:
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report.get(kind), (directory, kind, report[kind])
    with torch.no_grad():
        logits = model.eval()(windows).logits.double()
    nats[directory] = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), windows[:, 1:].reshape(-1)).item()
json.dump(nats, open(result, "w"))
