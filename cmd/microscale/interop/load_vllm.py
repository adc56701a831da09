"""Loads checkpoints with vLLM's own loaders, for architectures_vllm_test.go:
python load_vllm.py RESULT DIRECTORY...

Kernels are replaced by stubs, since those for block formats need a GPU. Configuration, modules,
names, shapes, joined weights and loaders are vLLM's. RESULT becomes a JSON object: for each
DIRECTORY the number of parameters, those that were not loaded, or the error.
"""

import importlib
import json
import os
import re
import sys
from unittest.mock import MagicMock

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")

import torch
import vllm.model_executor.kernels.linear as linear

for name in dir(linear):
    if name.startswith("init_") and name.endswith("_linear_kernel") or name == "choose_scaled_mm_linear_kernel":
        setattr(linear, name, lambda *_, **__: MagicMock())
for module, enum in {"fp8": "Fp8MoeBackend", "nvfp4": "NvFp4MoeBackend", "mxfp4": "Mxfp4MoeBackend", "mxfp8": "Fp8MoeBackend", "unquantized": "UnquantizedMoeBackend"}.items():
    oracle = importlib.import_module(f"vllm.model_executor.layers.fused_moe.oracle.{module}")
    backends = getattr(oracle, enum)
    backend = getattr(backends, "TRITON", None) or getattr(backends, "MARLIN", None) or next(iter(backends))
    for name in dir(oracle):
        if name.startswith("select_") and name.endswith("_moe_backend"):
            setattr(oracle, name, lambda *_, backend=backend, **__: (backend, MagicMock()))

from vllm.config import set_current_vllm_config
from vllm.distributed import destroy_model_parallel, init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

result_path, *directories = sys.argv[1:]


def load(directory):
    config = EngineArgs(model=directory, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=64, load_format="safetensors").create_engine_config()
    with set_current_vllm_config(config), set_default_torch_dtype(torch.bfloat16):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{result_path}.rendezvous", 0, "gloo")
        destroy_model_parallel()  # models without experts have no group for them
        initialize_model_parallel(1, 1)
        config.compilation_config.static_forward_context.clear()
        model = initialize_model(config)
        loader = get_model_loader(config.load_config)
        loaded = model.load_weights(loader.get_all_weights(config.model_config, model))
    # Scales of attention and of activations have defaults.
    default = re.compile(r"\.attn\.[qkv]_(scale|zero_point)$|input_(global_)?scale$")
    names = {name for name, _ in model.named_parameters() if not default.search(name)}
    result = {"parameters": len(names), "missing": sorted(names - loaded) if loaded is not None else ["load_weights returns nothing"]}
    result["types"] = sorted({str(p.dtype) for p in model.parameters()})
    return result


results = {}
for directory in directories:
    try:
        results[directory] = load(directory)
    except Exception as e:
        results[directory] = {"rejected": f"{type(e).__name__}: {e}"}
with open(result_path, "w") as f:
    json.dump(results, f)
