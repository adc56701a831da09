"""Models quantized and saved by mlx-lm, on a CPU (foreign.py)."""

import functools
import json

import mlx.core as mx
import torch
from mlx_lm import convert

import foreign

mx.set_default_device(mx.cpu)
GROUPS = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def make(mode, directory, model=foreign.llama):
    model().save_pretrained(directory / "source")
    foreign.tokenizer().save_pretrained(directory / "source")
    if "experts" in directory.name:  # mlx-lm needs members as transformers 4 wrote them
        config = directory / "source" / "config.json"
        config.write_text(json.dumps({"rope_theta": 10000.0, "num_experts": 4, **json.loads(config.read_text())}))
    convert(str(directory / "source"), mlx_path=str(directory / "model"), quantize=True, q_mode=mode)
    tensors = mx.load(str(directory / "model" / "model.safetensors"))
    values = {}
    for name, scales in tensors.items():
        if name.endswith(".scales") and scales.dtype == mx.uint8:
            module = name.removesuffix(".scales")
            size, bits = GROUPS[mode]
            w = mx.dequantize(tensors[module + ".weight"], scales, group_size=size, bits=bits, mode=mode, dtype=mx.float32)
            values[module + ".weight"] = torch.tensor(w.tolist())
    foreign.save_values(directory, values)


schemes = {mode: functools.partial(make, mode) for mode in GROUPS}
schemes |= {mode + " experts": functools.partial(make, mode, model=foreign.mixture) for mode in GROUPS}
foreign.run(schemes)
