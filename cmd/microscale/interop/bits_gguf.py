"""The quantizers of the Python package gguf, for bits_gguf_test.go: see bits.py."""

import gguf
import numpy

import bits

numpy.seterr(all="ignore")  # NaN and Inf are what is asked for


def quantize(x, job):
    blocks = x.reshape(-1, 32)
    if job["format"] == "mxfp4":
        stored = gguf.quants.MXFP4.quantize_blocks(blocks)
        scales, packed = stored[:, :1], stored[:, 1:]
        return numpy.concatenate([packed & 15, packed >> 4], axis=-1), scales, None
    stored = gguf.quants.Q8_0.quantize_blocks(blocks)
    # ggml's codes are integers, ours of those times 2^-6.
    scales = stored[:, :2].copy().view("<f2").astype("<f4") * 64
    return stored[:, 2:], scales, None


bits.run(quantize, load=bits.load)
