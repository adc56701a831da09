"""The quantizer of MLX on the CPU, for bits_mlx_test.go: see bits.py."""

import mlx.core as mx
import numpy

import bits

mx.set_default_device(mx.cpu)


def quantize(x, job):
    w = mx.array(x)
    if job["source"] == "bf16":
        w = w.view(mx.bfloat16)
    codes, scales = mx.quantize(w, mode=job["format"])[:2]
    codes = numpy.array(codes).view(numpy.uint8)
    if job["format"] != "mxfp8":
        codes = bits.nibbles(codes)
    one = numpy.ones(1, dtype="<f4") if job["format"] == "nvfp4" else None  # no global scale
    return codes, numpy.array(scales), one


bits.run(quantize, load=bits.load)
