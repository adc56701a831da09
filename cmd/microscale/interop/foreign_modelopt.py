"""Models quantized and saved by NVIDIA's Model Optimizer, on a CPU (foreign.py)."""

import functools

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

import foreign


def make(config, directory, model=foreign.llama):
    model = model()
    model.save_pretrained(directory / "source")
    mtq.quantize(model, getattr(mtq, config), lambda m: m(torch.arange(64).reshape(1, 64)))
    export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=directory / "model")
    foreign.save_values(directory, dict(decoded(directory / "model")))


def decoded(directory):
    """The values of each weight by Model Optimizer's tensors, in FP32."""
    tensors = foreign.tensors(directory)
    for name, scale in tensors.items():
        if not name.endswith(".weight_scale"):
            continue
        weight = name.removesuffix("_scale")
        codes, options = tensors[weight], {"scale": scale, "dtype": torch.float32}
        shape = (len(codes), codes.shape[1] * (2 if codes.dtype == torch.uint8 else 1))
        if codes.dtype == torch.uint8 and weight + "_scale_2" in tensors:
            kind, options = NVFP4QTensor, options | {"double_scale": tensors[weight + "_scale_2"], "block_sizes": {-1: shape[1] // scale.shape[1]}}
        elif codes.dtype == torch.uint8:
            kind, options = MXFP4QTensor, options | {"block_sizes": {-1: 32}}
        elif scale.dtype == torch.uint8:
            kind = MXFP8QTensor
        else:
            kind = FP8QTensor
            if "BLOCKWISE" in directory.parent.name:
                high, wide = -(-shape[0] // 128), -(-shape[1] // 128)
                options |= {"scale": scale.reshape(high, wide), "block_sizes": {0: 128, 1: 128}}
            elif scale.dim() == 1:
                options["scale"] = scale[:, None]
        yield weight, kind(shape, torch.float32, codes).dequantize(**options)


CONFIGS = ["NVFP4_DEFAULT_CFG", "W4A16_NVFP4_CFG", "NVFP4_FOUR_OVER_SIX_CFG", "NVFP4_AWQ_LITE_CFG", "NVFP4_MLP_ONLY_CFG", "W4A8_NVFP4_FP8_CFG", "FP8_DEFAULT_CFG",
           "FP8_PER_CHANNEL_PER_TOKEN_CFG", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", "MXFP8_DEFAULT_CFG", "MXFP4_DEFAULT_CFG", "W4A8_MXFP4_FP8_CFG", "MXFP6_DEFAULT_CFG",
           "MXINT8_DEFAULT_CFG"]
schemes = {name.removesuffix("_CFG").removesuffix("_DEFAULT"): functools.partial(make, name) for name in CONFIGS}
schemes |= {name + " experts": functools.partial(make, name + "_DEFAULT_CFG", model=foreign.mixture) for name in ("NVFP4", "FP8", "MXFP8")}
schemes["FP8_2D_BLOCKWISE odd"] = functools.partial(make, "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
                                                   model=lambda: foreign.llama(hidden_size=192, intermediate_size=320, num_attention_heads=3))
foreign.run(schemes)
