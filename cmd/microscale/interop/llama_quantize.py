"""Quantizes a GGUF file by llama.cpp's library, for ggufplan_test.go: llama_quantize.py LIBRARIES FILE DIRECTORY IMATRIX NAME=TYPE...

LIBRARIES is the folder of the shared libraries of one version of llama.cpp. DIRECTORY gets NAME.gguf of each general.file_type TYPE. IMATRIX is
an importance matrix in either form, or "": none.
"""

import ctypes
import glob
import os
import struct
import sys
from ctypes import c_byte, c_char_p, c_int32, c_size_t, c_void_p

import numpy

libraries, source, folder, importance = sys.argv[1:5]


class Params(ctypes.Structure):
    _fields_ = [("threads", c_int32), ("file_type", c_int32), ("types", c_int32 * 2), ("flags", c_byte * 8), ("imatrix", c_void_p),
                ("rest", c_byte * 224)]  # longer than llama_model_quantize_params


class Entry(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("size", c_size_t)]


def old(path):
    """The mean squares of the form before GGUF, by tensor, as llama-quantize takes them."""
    with open(path, "rb") as f:
        number = lambda: struct.unpack("<i", f.read(4))[0]
        for _ in range(number()):
            name = f.read(number())
            calls = number()
            yield name, numpy.frombuffer(f.read(4 * number()), "<f4") / numpy.float32(calls)


def new(path):
    """Those of the GGUF form."""
    import gguf

    tensors = {t.name: t.data for t in gguf.GGUFReader(path).tensors}
    for name, sums in tensors.items():
        if name.endswith(".in_sum2"):
            name = name.removesuffix(".in_sum2")
            counts = tensors[name + ".counts"].reshape(-1, 1)
            yield name.encode(), numpy.where(counts > 0, sums.reshape(len(counts), -1) / numpy.maximum(counts, 1), numpy.float32(1))


entries = []
if importance:
    is_new = open(importance, "rb").read(4) == b"GGUF"
    values = [(name, numpy.ascontiguousarray(v, "<f4")) for name, v in (new if is_new else old)(importance)]
    entries = (Entry * (len(values) + 1))(*[Entry(name, v.ctypes.data, v.size) for name, v in values])

ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
lib.llama_model_quantize_default_params.restype = Params
lib.llama_model_quantize.argtypes = [c_char_p, c_char_p, ctypes.POINTER(Params)]
log = ctypes.CFUNCTYPE(None, c_int32, c_char_p, ctypes.c_void_p)(lambda level, line, _: level >= 4 and print(line.decode(), file=sys.stderr))
lib.llama_log_set(log, None)
lib.llama_backend_init()
for job in sys.argv[5:]:
    name, kind = job.split("=")
    params = lib.llama_model_quantize_default_params()
    params.threads, params.file_type = 1, int(kind)
    if importance:
        params.imatrix = ctypes.addressof(entries)
    if lib.llama_model_quantize(source.encode(), os.path.join(folder, name + ".gguf").encode(), ctypes.byref(params)):
        raise SystemExit(f"{name} failed")
