"""Models quantized and saved by AMD's Quark, on a CPU (foreign.py)."""

import functools

import torch
from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors, import_model_from_safetensors
from quark.torch.export.nn.modules.qparamslinear import QParamsLinear

import foreign


def make(scheme, directory, model=foreign.llama, mode="quark"):
    quantized = model()
    quantized.save_pretrained(directory / "source")
    config = LLMTemplate.get(quantized.config.model_type).get_config(scheme=scheme)
    quantizer = ModelQuantizer(config)
    quantized = quantizer.freeze(quantizer.quantize_model(quantized, [torch.arange(64).reshape(1, 64)]))
    with torch.no_grad():
        export_safetensors(quantized, str(directory / "model"), custom_mode=mode)
        loaded = import_model_from_safetensors(model(), str(directory / "model"))
    values = {}
    for name, module in loaded.named_modules():
        if isinstance(module, QParamsLinear):
            values[name + ".weight"] = module.weight_quantizer(module.weight.data)
    foreign.save_values(directory, values)


SCHEMES = ["fp8", "ptpc_fp8", "mxfp4", "mxfp4_weight_only", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_mxfp6_e2m3", "mxfp4_fp8", "nvfp4", "amdfp4", "bfp16"]
schemes = {name: functools.partial(make, name) for name in SCHEMES}
schemes["fp8 for vLLM"] = functools.partial(make, "fp8", mode="fp8")
foreign.run(schemes)
