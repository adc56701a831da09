"""Loads checkpoints with vLLM's own loaders, for architectures_vllm_test.go:
python load_vllm.py RESULT DIRECTORY...

Kernels are replaced by stubs, since those for block formats need a GPU. Configuration, modules,
names, shapes, joined weights and loaders are vLLM's. RESULT becomes a JSON object: for each
DIRECTORY the number of parameters, those that were not loaded, or the error. Where DIRECTORY.values
is there, a checkpoint of the decoded values in F32, also the number of weights with and without them.
"""

import importlib
import json
import os
import re
import sys
import tempfile
from unittest.mock import MagicMock

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")

import torch
import vllm.model_executor.kernels.linear as linear

for name in dir(linear):
    if name.startswith("init_") and name.endswith("_linear_kernel") or name.startswith("choose_"):
        setattr(linear, name, lambda *_, **__: MagicMock(__name__="stub"))
for module in ("fp8", "nvfp4", "mxfp4", "mxfp8", "int8", "int_wna16", "unquantized"):
    oracle = importlib.import_module(f"vllm.model_executor.layers.fused_moe.oracle.{module}")
    backends = next(v for k, v in vars(oracle).items() if k.endswith("MoeBackend") or k.endswith("MoEBackend") and k != "MoEBackend")
    first = ("MARLIN", "TRITON") if module == "int_wna16" else ("TRITON", "MARLIN")
    backend = next((b for name in first if (b := getattr(backends, name, None)) is not None), next(iter(backends)))
    for name in dir(oracle):
        if name.startswith("select_") and name.endswith("_moe_backend"):
            setattr(oracle, name, lambda *_, backend=backend, **__: (backend, MagicMock()))

from vllm.config import set_current_vllm_config
from vllm.distributed import destroy_model_parallel, init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

temporary = tempfile.TemporaryDirectory()  # until the end of the process
# What no tensor sets is NaN.
torch.use_deterministic_algorithms(True, warn_only=True)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def load(directory):
    """Returns the model of a checkpoint, and the names of the parameters that were loaded."""
    config = EngineArgs(model=str(directory), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=64, load_format="safetensors").create_engine_config()
    with set_current_vllm_config(config), set_default_torch_dtype(torch.bfloat16):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{temporary.name}/rendezvous", 0, "gloo")
        destroy_model_parallel()  # models without experts have no group for them
        initialize_model_parallel(1, 1)
        config.compilation_config.static_forward_context.clear()
        model = initialize_model(config)
        loader = get_model_loader(config.load_config)
        return model, model.load_weights(loader.get_all_weights(config.model_config, model))


def parameter(module, prefix, *names):
    found = (getattr(module, prefix + name, None) for name in names)
    return next((p.data for p in found if p is not None and type(p).__name__ != "SharedWeightParameter"), None)  # that of a transform


def values(codes, scales, widths):
    """Multiplies codes by scales, of a tensor, of the rows of each of widths, of rows, or of blocks."""
    if codes.dtype == torch.uint8:
        codes = E2M1[torch.stack((codes & 15, codes >> 4), -1).flatten(1).long()]
    elif codes.dtype == torch.int32:  # the least number has code 0
        bits = 4 if scales is not None and codes.shape[1] * 8 // scales.shape[1] in (32, 64, 128) else 8
        codes = (codes.unsqueeze(-1) >> torch.arange(0, 32, bits) & 2**bits - 1).flatten(1) - 2 ** (bits - 1)
    codes = codes.float()
    if scales is None:
        return codes
    scales = torch.exp2(scales.float() - 127).masked_fill(scales == 255, torch.nan) if scales.dtype == torch.uint8 else scales.float()
    rows, cols = codes.shape
    if scales.numel() in (1, len(widths)):
        scales = scales.flatten().expand(len(widths)).repeat_interleave(torch.tensor(widths))
    if scales.dim() == 1:
        scales = scales.unsqueeze(1)
    if scales.dim() == 4:
        scales = scales[:, 0, :, 0]
    if scales.shape[0] != rows:
        scales = scales.repeat_interleave(128, 0)[:rows]
    if scales.shape[1] != 1:
        scales = scales.repeat_interleave(cols // scales.shape[1] if cols % scales.shape[1] == 0 else 128, 1)[:, :cols]
    return codes * scales


def decoded(model):
    """Yields the names of weights in checkpoints, their values, and the scale of their activations or None."""
    parts = getattr(model, "packed_modules_mapping", {})
    for name, module in model.named_modules():
        name = name.removesuffix(".routed_experts")
        head, _, last = name.rpartition(".")
        if hasattr(module, "w13_weight") or hasattr(module, "w13_weight_packed"):
            for prefix, projections in {"w13_": ("gate_proj", "up_proj"), "w2_": ("down_proj",)}.items():
                codes, scales = parameter(module, prefix, "weight_packed", "weight"), parameter(module, prefix, "weight_scale", "weight_scale_inv")
                global_, inverse = parameter(module, prefix, "weight_scale_2"), parameter(module, prefix, "weight_global_scale")
                inputs, inverses = parameter(module, prefix, "input_scale"), parameter(module, prefix, "input_global_scale")
                if getattr(getattr(module, prefix + "weight_packed", None), "is_transposed", False):
                    codes, scales = codes.transpose(1, 2), scales.transpose(1, 2)
                for e, code in enumerate(codes):
                    w = values(code, None if scales is None else scales[e], [len(code) // len(projections)] * len(projections))
                    if global_ is not None or inverse is not None:  # the first one is that of gate and up
                        w = w * (global_[e].flatten()[0] if inverse is None else 1 / inverse[e].flatten()[0])
                    for i, (projection, part) in enumerate(zip(projections, w.chunk(len(projections)))):
                        scale = inputs[e] if inputs is not None else 1 / inverses[e] if inverses is not None else None
                        if getattr(module.quant_method, "use_a16", False):
                            scale = None
                        yield f"{name}.{e}.{projection}", part, None if scale is None else scale.flatten().expand(len(projections))[i].item()
        elif (codes := parameter(module, "", "weight_packed", "weight")) is not None:
            scales = parameter(module, "", "weight_scale", "weight_scale_inv")
            if hasattr(module, "weight_global_scale") or hasattr(module, "weight_scale_2"):
                module.quant_method.process_weights_after_loading(module)  # which chooses one global scale
            widths = getattr(module, "logical_widths", None) or getattr(module, "output_partition_sizes", None) or [len(codes)]
            w = values(codes, scales, widths) if codes.dim() == 2 else codes.float()
            if (global_ := parameter(module, "", "weight_global_scale")) is not None:
                w = w * global_
            inputs = parameter(module, "", "input_global_scale", "input_scale")
            inputs = None if inputs is None else inputs.max().item()
            names = parts.get(last, [last])
            if len(names) != len(widths):
                names, widths = [last], [len(w)]
            for projection, part in zip(names, w.split(list(widths)) if w.dim() else [w]):
                yield f"{head}.{projection}" if head else projection, part, inputs


def compare(directory):
    model, loaded = load(directory)
    # Scales of attention and of activations have defaults.
    default = re.compile(r"\.attn\.(q|k|v|prob)_(scale|zero_point)$|input_(global_)?scale$")
    names = {name for name, _ in model.named_parameters() if not default.search(name)}
    result = {"parameters": len(names), "missing": sorted(names - loaded) if loaded is not None else ["load_weights returns nothing"]}
    result["types"] = sorted({str(p.dtype) for p in model.parameters()})
    if os.path.exists(f"{directory}.values"):
        from safetensors.torch import load_file

        want = load_file(f"{directory}.values/model.safetensors")
        result |= {"equal": 0, "different": []}
        for name, w, _ in decoded(model):
            if (have := want.get(name + ".weight")) is not None:
                if w.shape == have.shape and torch.allclose(w, have.float(), rtol=2**-20, atol=0):
                    result["equal"] += 1
                else:
                    result["different"].append(name)
    return result


def main(result_path, *directories):
    results = {}
    for directory in directories:
        try:
            results[directory] = compare(directory)
        except Exception as e:
            results[directory] = {"rejected": f"{type(e).__name__}: {e}"}
    with open(result_path, "w") as f:
        json.dump(results, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
