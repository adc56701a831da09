"""Models quantized and saved by mlx-lm, on a CPU (foreign.py)."""

import functools
import json

import mlx.core as mx
import torch
from mlx_lm import convert

import foreign

mx.set_default_device(mx.cpu)
GROUPS = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def make(mode, directory, model=foreign.llama, bits=None):
    model().save_pretrained(directory / "source")
    foreign.tokenizer().save_pretrained(directory / "source")
    if "experts" in directory.name:  # mlx-lm needs members as transformers 4 wrote them
        config = directory / "source" / "config.json"
        config.write_text(json.dumps({"rope_theta": 10000.0, "num_experts": 4, **json.loads(config.read_text())}))
    convert(str(directory / "source"), mlx_path=str(directory / "model"), quantize=True, q_mode=mode or "affine", q_bits=bits)
    tensors = mx.load(str(directory / "model" / "model.safetensors"))
    values = {}
    for name, scales in tensors.items():
        if not name.endswith(".scales"):
            continue
        module = name.removesuffix(".scales")
        codes, biases = tensors[module + ".weight"], tensors.get(module + ".biases")
        if biases is None:
            size, bits = GROUPS[mode]
            w = mx.dequantize(codes, scales, group_size=size, bits=bits, mode=mode, dtype=mx.float32)
        else:  # integers: those of routers have 8 bits
            size = 64
            bits = codes.shape[-1] * 32 // (scales.shape[-1] * size)
            w = mx.dequantize(codes, scales.astype(mx.float32), biases.astype(mx.float32), group_size=size, bits=bits)
        values |= named(module, torch.tensor(w.tolist()))
    foreign.save_values(directory, values)


def named(module, w):
    """The weights of a module by their names in transformers: mlx-lm joins the experts of a layer."""
    if ".switch_mlp." not in module:
        return {module + ".weight": w}
    parent, projection = module.split(".switch_mlp.")
    return {f"{parent}.experts.{i}.{projection}.weight": expert for i, expert in enumerate(w)}


def integers(bits, directory, model=foreign.llama):
    make(None, directory, model, bits)


schemes = {mode: functools.partial(make, mode) for mode in GROUPS}
schemes |= {mode + " experts": functools.partial(make, mode, model=foreign.mixture) for mode in GROUPS}
schemes |= {f"affine, {bits} bits": functools.partial(integers, bits) for bits in (3, 4, 5, 6, 8)}
schemes["affine, 4 bits experts"] = functools.partial(integers, 4, model=foreign.mixture)
foreign.run(schemes)
