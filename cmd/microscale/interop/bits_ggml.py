"""The quantizers of ggml in C, for bits_ggml_test.go: bits_ggml.py DIRECTORY LIBRARIES (see bits.py).

LIBRARIES is the folder of the shared libraries of one version of llama.cpp.
"""

import ctypes
import glob
import os
import sys

import numpy

import bits

ggml = ctypes.CDLL(glob.glob(os.path.join(sys.argv[2], "libggml-base*.so*"))[0])
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

# The number of the type, and elements and bytes of a struct.
types = {"q8_0": (8, 32, 34), "mxfp4": (39, 32, 17), "nvfp4": (40, 64, 36)}


def quantize(x, job):
    number, elements, size = types[job["format"]]
    x = numpy.ascontiguousarray(x)
    stored = numpy.zeros((x.size // elements, size), dtype="u1")
    written = ggml.ggml_quantize_chunk(number, x.ctypes.data, stored.ctypes.data, 0, x.shape[0], x.shape[1], None)
    if written != stored.size:
        raise SystemExit(f"ggml_quantize_chunk wrote {written} bytes, not {stored.size}")
    if job["format"] == "q8_0":  # codes are integers, ours of those times 2^-6
        scales = stored[:, :2].copy().view("<f2").astype("<f4") * 64
        return stored[:, 2:], scales, None
    scales, packed = (stored[:, :1], stored[:, 1:]) if job["format"] == "mxfp4" else (stored[:, :4], stored[:, 4:])
    packed = packed.reshape(-1, elements // scales.shape[1] // 2)
    one = numpy.ones(1, dtype="<f4") if job["format"] == "nvfp4" else None  # no global scale
    return numpy.concatenate([packed & 15, packed >> 4], axis=-1), scales, one


bits.run(quantize, load=bits.load)
