"""Loads the checkpoints of conformance/checkpoints with transformers, for conformance_clients_test.go:

    python conformance_clients.py PROGRAM RESULT DIRECTORY...

Each DIRECTORY has the checkpoints good and broken, which have some weights of a layer. The others are added, unquantized and on the
ignore list, so that the model is whole. PROGRAM decodes the good one. RESULT becomes a JSON object: for each DIRECTORY what became of
good and broken in transformers, without options but dequantize=False: the error, or the number of weights with other values, what the
report of loading lists, and the loss, beside that of the decoded values.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compressed-tensors would compile its decoder of FP4

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, CompressedTensorsConfig, logging

logging.set_verbosity_error()
CODES = (".weight", ".weight_packed")


def whole(directory, target):
    """Copies a checkpoint with all weights of its model."""
    shutil.copytree(directory, target)
    path = target / "model.safetensors"
    tensors = load_file(path)
    config = json.loads((target / "config.json").read_text())
    shapes = {name.removesuffix(end): t.shape for name, t in tensors.items() for end in CODES if name.endswith(end)}
    layer = "model.layers.0."
    heads = {name: shapes[f"{layer}self_attn.{name}_proj"][0] // 64 for name in "qk"}
    gate = next((shape[0] for name, shape in shapes.items() if name.endswith(("mlp.gate_proj", "mlp.experts.0.gate_proj"))), 128)
    config |= {"vocab_size": shapes["lm_head"][0], "hidden_size": 128, "intermediate_size": gate, "num_hidden_layers": 1, "num_attention_heads": heads["q"],
               "num_key_value_heads": heads["k"], "head_dim": 64, "max_position_embeddings": 512, "tie_word_embeddings": False, "moe_intermediate_size": gate,
               "num_experts_per_tok": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
               "architectures": [{"llama": "LlamaForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}[config["model_type"]]]}
    unquantized = {k: v for k, v in config.items() if k != "quantization_config"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**unquantized), dtype=torch.bfloat16)
    torch.manual_seed(1)
    ignore = []
    for name, p in model.state_dict().items():
        module = name.removesuffix(".weight")
        if module in shapes and name != "lm_head.weight" or ".experts." in name:
            continue
        tensors[name] = torch.ones_like(p) if p.dim() == 1 else torch.randn(p.shape).to(p.dtype) / 16
        if p.dim() == 2 and module not in shapes and "embed" not in name:
            ignore.append(module)
    quantization = config["quantization_config"]
    key = next((k for k in ("modules_to_not_convert", "exclude_modules") if k in quantization), "ignore")
    quantization[key] = (quantization.get(key) or []) + ignore
    (target / "config.json").write_text(json.dumps(config))
    save_file(tensors, path, metadata={"format": "pt"})


def load(directory):
    options = {}
    quantization = json.loads((directory / "config.json").read_text()).get("quantization_config")
    if quantization and quantization["quant_method"] == "compressed-tensors":
        options["quantization_config"] = CompressedTensorsConfig(dequantize=False)
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, output_loading_info=True, **options)
    return model.eval(), sorted(kind for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if report.get(kind))


def loss(model):
    tokens = torch.arange(64).reshape(2, 32) * 7 % model.config.vocab_size
    with torch.no_grad():
        model(tokens)  # compressed-tensors decodes in the first pass
        for module in model.modules():
            if hasattr(module, "quantization_scheme"):
                module.quantization_enabled = False
        return model(tokens, labels=tokens).loss.item()


def compare(directory, values):
    try:
        model, report = load(directory)
        got = loss(model)
        if not model.config.quantization_config:
            raise ValueError("not quantized")
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    have, other = dict(model.named_parameters()), 0
    for name, want in values.named_parameters():
        # The client rounds FP32 scales to BF16, and then the product.
        if name not in have or have[name].shape != want.shape or not torch.allclose(have[name].float(), want.float(), rtol=2**-7, atol=0):
            other += 1
    return {"other": other, "report": report, "loss": str(got)}


def decoded(program, directory):
    """Makes both checkpoints of a directory whole, and returns the model of the values of the good one."""
    for kind in ("good", "broken"):
        if (directory / kind).exists():
            whole(directory / kind, directory / f"{kind} whole")
    subprocess.run([program, "dequantize", directory / "good whole", directory / "values", "--dtype", "bf16"], check=True, capture_output=True)
    return load(directory / "values")[0]


def main(program, result_path, directories, compare):
    results = {}
    for directory in map(pathlib.Path, directories):
        out = {}
        try:
            values = decoded(program, directory)
            out["loss"] = str(loss(values))
            for kind in ("good", "broken"):
                out[kind] = compare(directory / f"{kind} whole", values)
        except Exception as e:
            out["failed"] = f"{type(e).__name__}: {e}"
        results[directory.name] = out
        print(directory.name, json.dumps(out), flush=True)
    pathlib.Path(result_path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:], compare)
