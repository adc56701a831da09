"""Models quantized and saved by Intel's AutoRound, in its own layout and that of compressed-tensors (foreign.py)."""

import functools
import pathlib
import types

import torch
from auto_round import AutoRound
from auto_round.data_type.nvfp import e5m3_to_float_tensor
from auto_round.experimental.qmodules import fp8_static, mx, nvfp4
from auto_round.experimental.qmodules.fp4_utils import unpack_fp4_from_uint8
from auto_round.schemes import preset_name_to_scheme
from safetensors import safe_open

import foreign


def make(scheme, directory, model=foreign.llama, layout="auto_round"):
    model, tokenizer = model(), foreign.tokenizer()
    model.save_pretrained(directory / "source")
    text = [torch.arange(32).reshape(1, 32) + i for i in range(4)]
    _, folders = AutoRound(model, tokenizer, scheme=scheme, iters=0, disable_opt_rtn=True, dataset=text, nsamples=4, seqlen=32, batch_size=1,
              device_map="cpu").quantize_and_save(str(directory / "saved"), format=layout)
    pathlib.Path(folders if isinstance(folders, str) else folders[0]).rename(directory / "model")
    foreign.save_values(directory, dict(decoded(directory / "model", scheme)))


def decoded(directory, scheme):
    """The values of each weight by the modules with which AutoRound infers, before they round to BF16."""
    config = types.SimpleNamespace(group_size=16, act_group_size=16, rotation_config=None)
    tensors = foreign.tensors(directory)
    for name, scale in tensors.items():
        module = name.removesuffix(".weight_scale").removesuffix(".weight_scale_inv")
        if module == name:
            continue
        codes = tensors.get(module + ".weight_packed", tensors.get(module + ".weight"))
        if scheme == "NVFP4_E5M3":
            unpacked = unpack_fp4_from_uint8(codes, len(codes), 2 * codes.shape[1], dtype=torch.bfloat16).float()
            yield module + ".weight", (unpacked.reshape(-1, 16) * e5m3_to_float_tensor(scale).reshape(-1, 1)).reshape(unpacked.shape)
            continue
        kind = {"MXFP4": mx.MXFP4QuantLinear, "MXFP8": mx.MXFP8QuantLinear, "NVFP4": nvfp4.NVFP4QuantLinear}.get(scheme.removesuffix("_RCEIL"))
        if kind is None:
            yield module + ".weight", foreign.scaled(codes, scale)
            continue
        wide = codes.shape[1] * (2 if codes.dtype == torch.uint8 else 1)
        layer = kind(wide, len(codes), config, weight=codes, weight_scale=scale)
        if scheme == "NVFP4":
            layer.weight_global_scale = tensors[module + ".weight_global_scale"]
        yield module + ".weight", layer.dequant_weight_online()


SCHEMES = ["MXFP4", "MXFP4_RCEIL", "MXFP8", "MXFP8_RCEIL", "NVFP4", "NVFP4_E5M3", "MXFP6", "FP8_STATIC", "FP8_BLOCK", "FPW8A16"]
schemes = {name: functools.partial(make, name) for name in SCHEMES}
schemes |= {name + " for compressed-tensors": functools.partial(make, name, layout="llm_compressor") for name in ("MXFP4", "MXFP8", "NVFP4", "FP8_STATIC")}
schemes |= {name + " experts": functools.partial(make, name, model=foreign.mixture) for name in ("MXFP4", "MXFP8", "NVFP4")}
foreign.run(schemes)
