"""Models quantized by torchao and saved by transformers, in torchao's layout (foreign.py)."""

import functools

import torch
from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig, NVFP4DynamicActivationNVFP4WeightConfig, NVFP4WeightOnlyConfig
from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, Float8WeightOnlyConfig, PerRow, PerTensor, quantize_
from transformers import AutoModelForCausalLM, TorchAoConfig

import foreign


def make(config, directory, model=foreign.llama):
    quantize_(torch.nn.Linear(128, 128, dtype=torch.bfloat16), config())  # for torchao's error, which transformers hides
    model().save_pretrained(directory / "source")
    quantized = AutoModelForCausalLM.from_pretrained(directory / "source", quantization_config=TorchAoConfig(config()), dtype=torch.bfloat16)
    quantized.save_pretrained(directory / "model")
    loaded = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.bfloat16)
    foreign.save_values(directory, {name: p.dequantize(torch.float32) for name, p in loaded.named_parameters() if hasattr(p, "qdata")})


CONFIGS = {
    "FP8 rows": Float8WeightOnlyConfig,
    "FP8 rows, activations": functools.partial(Float8DynamicActivationFloat8WeightConfig, granularity=PerRow()),
    "FP8 tensors, activations": functools.partial(Float8DynamicActivationFloat8WeightConfig, granularity=PerTensor()),
    "MXFP8": MXDynamicActivationMXWeightConfig,
    "MXFP4": functools.partial(MXDynamicActivationMXWeightConfig, activation_dtype=torch.float4_e2m1fn_x2, weight_dtype=torch.float4_e2m1fn_x2),
    "NVFP4": NVFP4DynamicActivationNVFP4WeightConfig,
    "NVFP4 weights": NVFP4WeightOnlyConfig,
    "NVFP4 without global scale": functools.partial(NVFP4WeightOnlyConfig, use_dynamic_per_tensor_scale=False),
}
schemes = {name: functools.partial(make, config) for name, config in CONFIGS.items()}
schemes["FP8 rows experts"] = functools.partial(make, Float8WeightOnlyConfig, model=foreign.mixture)
foreign.run(schemes)
