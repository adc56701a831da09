"""Models quantized and saved by llm-compressor (foreign.py)."""

import functools

import torch
from compressed_tensors.compressors.base import decompress_module
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM

import foreign

TEXT = Dataset.from_dict({"input_ids": [[(7 * i + j) % 256 for j in range(64)] for i in range(4)]})


def make(scheme, directory, model=foreign.llama, modifier=QuantizationModifier):
    model().save_pretrained(directory / "source")
    model = AutoModelForCausalLM.from_pretrained(directory / "source", dtype=torch.bfloat16)
    oneshot(model=model, tokenizer=foreign.tokenizer(), dataset=TEXT, recipe=modifier(targets="Linear", scheme=scheme, ignore=["lm_head", "re:.*gate$"]), num_calibration_samples=4,
            max_seq_length=64)
    model.save_pretrained(directory / "model", save_compressed=True)
    values = {}
    for name, module in model.named_modules():
        if getattr(module, "quantization_scheme", None) is not None:
            decompress_module(module)
            values[name + ".weight"] = module.weight
    foreign.save_values(directory, values)


SCHEMES = ["FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "NVFP4", "MXFP4A16", "MXFP4", "MXFP8A16", "MXFP8"]
schemes = {name: functools.partial(make, name) for name in SCHEMES}
schemes["NVFP4 by GPTQ"] = functools.partial(make, "NVFP4A16", modifier=GPTQModifier)
schemes |= {name + " experts": functools.partial(make, name, model=foreign.mixture) for name in ("NVFP4A16", "FP8_DYNAMIC", "MXFP4A16")}
foreign.run(schemes)
