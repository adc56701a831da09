"""Loads quantized checkpoints with transformers, for checkpoint_test.go.

    python checkpoint.py PACKAGES|- RESULT DIRECTORY...

PACKAGES is a folder of packages that come before those that are installed.
Each DIRECTORY has model, the quantized checkpoint; values, the same with every
weight decoded by package convert; and, of a Llama, expected.safetensors with tokens
(sequences x length) and the logits of our forward pass with those values.
Transformers decodes model on the CPU. RESULT becomes a JSON object: for each
DIRECTORY what rejected it, or how what was loaded differs from values and logits.
"""

import json
import os
import sys

packages, result_path, *directories = sys.argv[1:]
if packages != "-":
    sys.path.insert(0, packages)
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compressed-tensors would have a C++ compiler decode FP4

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, logging

version = int(transformers.__version__.split(".")[0])
logging.set_verbosity_error()


def dequantizing(config):
    """The configuration with which this version decodes the weights; None for its default."""
    method = config["quant_method"]
    if method == "compressed-tensors":
        return transformers.CompressedTensorsConfig(**({"run_compressed": False} if version < 5 else {"dequantize": True}))
    if method == "mxfp4":
        return transformers.Mxfp4Config(dequantize=True)
    return None


def load(directory):
    options = {"attn_implementation": "eager"}
    if quantization := getattr(AutoConfig.from_pretrained(directory), "quantization_config", None):
        if chosen := dequantizing(quantization):
            options["quantization_config"] = chosen
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True, **options)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        # Version 5 ignores scales of activations if it decodes weights.
        names = [name for name in report.get(kind, ()) if version < 5 or not name.endswith((".input_scale", ".input_global_scale"))]
        assert not names, (kind, names)
    return torch.nn.Module.float(model.eval())  # some methods decode to BF16 whatever was asked for


def weights_only(model):
    """Disables the quantization of activations, and of weights again, at run time."""
    for module in model.modules():
        if hasattr(module, "quantization_scheme"):
            module.quantization_enabled = False


def difference(got, want):
    """The largest difference relative to the largest value."""
    return ((got - want).abs().max() / want.abs().max()).item()


def compare(directory):
    model, values = load(f"{directory}/model"), load(f"{directory}/values")
    result = {"weights": 0, "different": []}
    decoded = dict(model.named_parameters())
    for name, want in values.named_parameters():
        got = decoded[name]
        assert got.shape == want.shape, (name, got.shape, want.shape)
        result["weights"] += 1
        if not torch.equal(got.view(torch.int32), want.view(torch.int32)):
            result["different"].append(f"{name}: {difference(got, want):.3g} of the largest value")
    expected = {}
    if os.path.exists(f"{directory}/expected.safetensors"):
        expected = load_file(f"{directory}/expected.safetensors")
    tokens = expected["tokens"].long() if expected else torch.arange(64).reshape(2, 32)
    with torch.no_grad():
        reference = values(tokens).logits
        result["activations"] = difference(model(tokens).logits, reference)
        weights_only(model)
        logits = model(tokens).logits
    result["of values"] = difference(logits, reference)
    if expected:
        result["of ours"] = difference(logits, expected["logits"])
    return result


results = {}
for directory in directories:
    try:
        results[os.path.basename(directory)] = compare(directory)
    except Exception as e:
        results[os.path.basename(directory)] = {"rejected": f"{type(e).__name__}: {e}"}
with open(result_path, "w") as f:
    json.dump(results, f)
import compressed_tensors

print(f"torch {torch.__version__}, transformers {transformers.__version__}, compressed-tensors {compressed_tensors.__version__}")
