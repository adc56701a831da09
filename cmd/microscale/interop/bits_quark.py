"""The quantizers of AMD Quark, for bits_quark_test.go: see bits.py."""

import torch
from quark.torch.kernel.hw_emulation import hw_emulation_interface  # noqa: F401 (registers the operations)
from quark.torch.quantization.utils import even_round
from quark.torch.utils.numerics import to_e8m0_uint8
from quark.torch.utils.pack import create_pack_method

import bits

DTYPES = {"mxfp4": "fp4", "mxfp6-e3m2": "fp6_e3m2", "mxfp6-e2m3": "fp6_e2m3"}


def quantize(x, job):
    dtype = DTYPES[job["format"]]
    scale = even_round(x.abs().amax(-1, keepdim=True), dtype)
    values = torch.ops.quark.scaled_real_quantize(dtype, x, scale, torch.zeros(1), -1, 32, 0.0, 0.0, 0, "per_group")
    packed = create_pack_method("per_group", dtype).pack(values, False)
    if dtype == "fp4":
        return bits.nibbles(packed), to_e8m0_uint8(scale), None
    a, b, c = packed.reshape(-1, 3).to(torch.int32).unbind(-1)
    word = a | b << 8 | c << 16
    codes = torch.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], dim=-1)
    return codes.to(torch.uint8), to_e8m0_uint8(scale), None


bits.run(quantize)
