"""Models in FP-Quant's layout, quantized by the kernels of fp_quant on a CPU (foreign.py).

fp_quant has codes from a GPU alone (QuTLASS). Its Triton kernels, which Triton interprets on a CPU, return the values of codes of rotated
weights: from these come the codes and scales, in the tensors that its FPQuantLinear saves.
"""

import functools
import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from fp_quant.module.triton import mxfp4, nvfp4
from fp_quant.module.linear import get_gsr_matrix, get_hadamard_matrix, get_identity_matrix
from fp_quant.module.pseudoquant_linear_fns import forward_pseudoquantize
from fp_quant.utils import FPQuantDtype
from safetensors.torch import save_file
from transformers import FPQuantConfig

import foreign


class Untuned:
    """A kernel with one size of blocks, because choosing the fastest needs a GPU."""

    def __init__(self, kernel):
        self.kernel = kernel.fn

    def __getitem__(self, grid):
        return lambda **arguments: self.kernel[grid({"BLOCK_SIZE": 4096})](**arguments, BLOCK_SIZE=4096)


mxfp4.mxfp4_forward_kernel = Untuned(mxfp4.mxfp4_forward_kernel)
nvfp4.nvfp4_forward_kernel = Untuned(nvfp4.nvfp4_forward_kernel)
MATRICES = {"hadamard": get_hadamard_matrix, "identity": get_identity_matrix, "gsr": get_gsr_matrix}
GRID = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def encoded(values, dtype, divisor):
    """The codes and scales of values that are code · scale / divisor."""
    blocks = values.double().reshape(values.shape[0], -1, 32 if dtype == "mxfp4" else 16) * divisor
    amax = blocks.abs().amax(-1, keepdim=True).float()
    if dtype == "mxfp4":
        scale = torch.exp2(torch.floor(torch.log2(amax * (1 + 2**-20))) - 2)
        stored = (torch.log2(scale) + 127).to(torch.uint8)
    else:
        stored = (amax / 6).to(torch.float8_e4m3fn)
        scale, stored = stored.float(), stored.view(torch.uint8)
    scaled = blocks / scale.double()
    index = (scaled.abs().unsqueeze(-1) - GRID.double()).abs().argmin(-1)
    assert torch.allclose(GRID.double()[index], scaled.abs(), rtol=1e-6, atol=1e-6)
    codes = (index + 8 * (scaled < 0)).to(torch.uint8).reshape(values.shape[0], -1)
    exact = torch.copysign(GRID[index], scaled.float()) * scale
    return codes[:, ::2] | codes[:, 1::2] << 4, stored.squeeze(-1), exact.reshape(values.shape)


def make(dtype, method, transform, size, directory):
    source = foreign.llama()
    source.save_pretrained(directory / "source")
    model = foreign.llama()
    divisor = 1.0 if method == "quest" else 3.0
    tensors, values = {}, {}
    for name, parameter in model.state_dict().items():
        if not name.endswith("_proj.weight"):
            tensors[name] = parameter
            continue
        module = name.removesuffix(".weight")
        matrix = MATRICES[transform](size, torch.bfloat16, "cpu")
        rotated, _ = forward_pseudoquantize(parameter.float(), matrix.float(), torch.tensor([divisor]), FPQuantDtype(dtype), method)
        codes, scales, exact = encoded(rotated, dtype, divisor)
        back = exact.double().reshape(-1, size) @ matrix.double().T / divisor
        values[name] = back.reshape(parameter.shape).float()
        tensors |= {module + ".qweight": codes, module + ".scales": scales, module + ".weight_global_scale": torch.tensor([divisor], dtype=torch.bfloat16),
                    module + ".act_global_scale": torch.tensor([divisor], dtype=torch.bfloat16), module + ".forward_hadamard_matrix": matrix.clone(),
                    module + ".backward_hadamard_matrix": matrix.clone()}
    config = FPQuantConfig(forward_dtype=dtype, forward_method=method, transform_init=transform, hadamard_group_size=size).to_dict()
    (directory / "model").mkdir()
    save_file({name: t.contiguous() for name, t in tensors.items()}, directory / "model" / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((directory / "source" / "config.json").read_text()) | {"quantization_config": config}
    (directory / "model" / "config.json").write_text(json.dumps(text, default=str))
    foreign.save_values(directory, values)


SCHEMES = [("mxfp4", "abs_max", "hadamard", 32), ("mxfp4", "quest", "gsr", 64), ("mxfp4", "abs_max", "identity", 128), ("nvfp4", "abs_max", "hadamard", 16),
           ("nvfp4", "abs_max", "gsr", 128)]
foreign.run({" ".join(map(str, scheme)): functools.partial(make, *scheme) for scheme in SCHEMES})
