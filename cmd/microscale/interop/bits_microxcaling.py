"""The quantizer of microxcaling, for bits_microxcaling_test.go: see bits.py.

    python bits_microxcaling.py DIRECTORY CHECKOUT

It returns values, not codes, in the dtype of its input: codes here are those of its
values over the scale that its own function gives. It makes 0 of -0; the sign of a code is
that of the input here, as in its C++."""

import sys

import torch

sys.path.insert(0, sys.argv[2])
from mx.formats import _get_format_params  # noqa: E402
from mx.mx_ops import _quantize_mx, _shared_exponents  # noqa: E402

import bits  # noqa: E402

# Our formats: theirs, the exponent bits, mantissa bits and bias of codes, and the code of NaN.
FORMATS = {
    "mxfp8": ("fp8_e4m3", 4, 3, 7, 0x7F),
    "mxfp8-e5m2": ("fp8_e5m2", 5, 2, 15, 0x7F),
    "mxfp6-e3m2": ("fp6_e3m2", 3, 2, 3, 0x1F),
    "mxfp6-e2m3": ("fp6_e2m3", 2, 3, 1, 0x1F),
    "mxfp4": ("fp4_e2m1", 2, 1, 1, 0x7),
    "mxint8": ("int8", 0, 0, 0, 0x7F),
}


def codes_of(values, signs, exponents, mantissa, bias, nan):
    """Returns the codes of values that a format represents exactly."""
    values = values.double()
    if not exponents:  # INT8: integers times 2^-6
        codes = (values * 64).nan_to_num(nan=nan).to(torch.int64) & 0xFF
    else:
        magnitude = values.abs()
        exponent = torch.frexp(magnitude).exponent.sub(1).clamp(min=1 - bias)
        exponent = torch.where(magnitude == 0, 1 - bias, exponent)
        steps = magnitude / torch.exp2((exponent - mantissa).double())  # exactly
        codes = steps.nan_to_num(0).to(torch.int64) + ((exponent + bias - 1) << mantissa)
        codes |= signs.to(torch.int64) << (exponents + mantissa)
    return torch.where(values.isnan(), nan, codes).to(torch.uint8)


def quantize(x, job):
    name, exponents, mantissa, bias, nan = FORMATS[job["format"]]
    emax = _get_format_params(name)[2]
    y = _quantize_mx(x.clone(), 8, name, axes=[-1], block_size=32)
    shared = _shared_exponents(x.reshape(-1, 32), axes=[-1]).float() - emax
    shared[shared > 127] = float("nan")
    shared = shared.clamp(min=-127)
    scales = torch.where(shared.isnan(), 255, shared.nan_to_num(0) + 127).to(torch.uint8)
    values = y.reshape(-1, 32).double() / torch.exp2(shared.double())
    return codes_of(values, torch.signbit(x).reshape(-1, 32), exponents, mantissa, bias, nan), scales, None


bits.run(quantize)
