"""Models quantized and saved by transformers itself, without another library (foreign.py)."""

import functools

import torch
from transformers import AutoModelForCausalLM, FbgemmFp8Config, FineGrainedFP8Config, Mxfp4Config, NVFP4Config

import foreign


def make(config, directory, model=foreign.llama):
    model().save_pretrained(directory / "source")
    quantized = AutoModelForCausalLM.from_pretrained(directory / "source", quantization_config=config(), dtype=torch.bfloat16)
    quantized.save_pretrained(directory / "model")
    config = FineGrainedFP8Config(dequantize=True) if "FP8" in directory.name else Mxfp4Config(dequantize=True)
    loaded = AutoModelForCausalLM.from_pretrained(directory / "model", quantization_config=config, dtype=torch.float32)
    foreign.save_values(directory, {n: p for n, p in loaded.named_parameters() if p.dim() > 1 and "embed" not in n})


foreign.run({
    "FineGrainedFP8": functools.partial(make, FineGrainedFP8Config),
    "FbgemmFP8": functools.partial(make, FbgemmFp8Config),
    "MXFP4": functools.partial(make, Mxfp4Config),
    "NVFP4": functools.partial(make, NVFP4Config),
})
