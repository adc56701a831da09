"""Loads quantized checkpoints of many architectures with transformers, for architectures_test.go:
python decode_architectures.py RESULT DIRECTORY...

Each DIRECTORY has model, the quantized checkpoint, and values, the same with every weight
decoded by package convert. RESULT becomes a JSON object: for each DIRECTORY the error of
transformers, or how the parameters and logits of model differ from those of values.
"""

import json
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compressed-tensors would compile its decoder of FP4

import torch
import transformers
from transformers import AutoConfig, logging

logging.set_verbosity_error()


def load(directory):
    config = AutoConfig.from_pretrained(directory)
    cls = getattr(transformers, config.architectures[0])
    options = {}
    if quantization := getattr(config, "quantization_config", None):
        if quantization["quant_method"] == "compressed-tensors":
            options["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
        elif quantization["quant_method"] == "mxfp4":
            options["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model, report = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **options)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = [name for name in report.get(kind, ()) if not name.endswith((".input_scale", ".input_global_scale"))]
        assert not names, (kind, sorted(names)[:3])
    return torch.nn.Module.float(model.eval())


def logits(model):
    tokens = torch.arange(64).reshape(2, 32)
    inputs = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {"input_ids": tokens}
    if model.config.model_type == "whisper":
        inputs["input_features"] = torch.randn(2, model.config.num_mel_bins, 2 * model.config.max_source_positions, generator=torch.Generator().manual_seed(1)).to(model.dtype)
    elif model.config.is_encoder_decoder:
        inputs["input_ids"] = tokens.flip(0)
    with torch.no_grad():
        return model(**inputs).logits


def compare(directory):
    values = load(f"{directory}/values")
    try:
        model = load(f"{directory}/model")
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    result = {"weights": 0, "different": [], "ratio": 1.0}
    decoded = dict(model.named_parameters())
    for name, want in values.named_parameters():
        got = decoded[name]
        assert got.shape == want.shape, (name, got.shape, want.shape)
        result["weights"] += 1
        if not torch.equal(got, want):
            result["different"].append(name)
            result["ratio"] = max(result["ratio"], (got.abs().max() / want.abs().max()).item(), key=lambda r: abs(r - 1))
    result["logits equal"] = torch.equal(logits(model), logits(values))
    return result


def main(result_path, *directories):
    results = {}
    for directory in directories:
        try:
            results[directory] = compare(directory)
        except Exception as e:
            results[directory] = {"failed": f"{type(e).__name__}: {e}"}
    with open(result_path, "w") as f:
        json.dump(results, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
