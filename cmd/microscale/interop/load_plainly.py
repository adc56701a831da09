"""Loads quantized checkpoints with transformers as users do, from_pretrained(DIRECTORY) without options, for
plainly_test.go: python load_plainly.py RESULT DIRECTORY...

Each DIRECTORY has model, the quantized checkpoint, and values, the same with every weight decoded by package
convert. RESULT becomes a JSON object: for each DIRECTORY the error of transformers, or how model differs from
values. Logits are those of products without quantized activations, and are compared with those of values
after its parameters are replaced by those of model, which differ by rounding only.
"""

import json
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compressed-tensors would compile its decoder of FP4

import torch
import transformers
from decode_architectures import logits
from transformers import AutoConfig, logging

logging.set_verbosity_error()


def load(directory):
    cls = getattr(transformers, AutoConfig.from_pretrained(directory).architectures[0])
    return cls.from_pretrained(directory).eval()


def unquantized_activations(model):
    for module in model.modules():
        if hasattr(module, "quantization_scheme"):
            module.quantization_enabled = False


def compare(directory):
    values = load(f"{directory}/values")
    try:
        model = load(f"{directory}/model")
        first = logits(model)  # compressed-tensors decodes in the first pass
        assert first.isfinite().all(), "logits are not finite"
        unquantized_activations(model)
        got = logits(model)
        decoded = dict(model.named_parameters())
        result = {"weights": 0, "error": 0.0, "dtype": str(model.dtype)}
        for name, want in values.named_parameters():
            result["weights"] += 1
            error = ((decoded[name].float() - want.float()).abs() / want.float().abs().clamp_min(1e-30)).max().item()
            result["error"] = max(result["error"], error)
            want.data.copy_(decoded[name])
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    want = logits(values)
    result["logits"] = ((got - want).abs().max() / want.abs().max()).item()
    return result


if __name__ == "__main__":
    result_path, *directories = sys.argv[1:]
    results = {directory: compare(directory) for directory in directories}
    with open(result_path, "w") as f:
        json.dump(results, f)
