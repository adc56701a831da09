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
    if job["format"] == "mxfp4":
        codes = bits.nibbles(codes)
    return codes, numpy.array(scales), None


bits.run(quantize, load=bits.load)
