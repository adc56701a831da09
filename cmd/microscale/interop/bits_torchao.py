"""The quantizers of torchao, for bits_torchao_test.go: see bits.py."""

import torch
from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
from torchao.float8.config import ScalingGranularity
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

import bits

ELEMENTS = {
    "mxfp8": torch.float8_e4m3fn,
    "mxfp8-e5m2": torch.float8_e5m2,
    "mxfp6-e3m2": DTYPE_FP6_E3M2,
    "mxfp6-e2m3": DTYPE_FP6_E2M3,
    "mxfp4": torch.float4_e2m1fn_x2,
}


def quantize(x, job):
    format = job["format"]
    if format in ELEMENTS:
        mode = ScaleCalculationMode[job["option"].upper()]
        scales, codes = to_mx(x, ELEMENTS[format], 32, scaling_mode=mode)
        return bits.nibbles(codes) if format == "mxfp4" else codes, scales, None
    if format == "nvfp4":
        scale = per_tensor_amax_to_scale(x.abs().amax())
        scales, codes = nvfp4_quantize(x, per_tensor_scale=scale)
        return bits.nibbles(codes), scales, scale
    # As the casts of float8 training, which keep the inverse.
    granularity, dim = ScalingGranularity.TENSORWISE, None
    if format == "fp8-row":
        granularity, dim = ScalingGranularity.AXISWISE, -1
    encode = tensor_to_scale(x, torch.float8_e4m3fn, scaling_granularity=granularity, axiswise_dim=dim)
    return to_fp8_saturated(x.float() * encode, torch.float8_e4m3fn), encode.reciprocal(), None


bits.run(quantize)
