"""llama.cpp's conversion of a file from BF16 to MXFP4 on one thread, for conversion_test.go:
python convert_libllama.py LIBRARIES SOURCE RESULT

Writes SOURCE, a GGUF file of 8 layers of the shape of Llama-3.2-1B. For each line of standard input it
writes RESULT and prints the seconds that this took, and those until RESULT was on the disk.
"""

import ctypes
import glob
import os
import sys
import time
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_void_p

import gguf

import random_llama

libraries, source, result = sys.argv[1:]
MXFP4_MOE = 38  # llama_ftype


class Params(ctypes.Structure):
    _fields_ = [(n, c_int32) for n in ("threads", "type", "output", "embedding")] + [(n, c_bool) for n in ("requantize", "quantize_output", "only_copy", "pure")] + [("rest", c_void_p * 16)]


random_llama.write(source, gguf.GGMLQuantizationType.BF16, 8, 4096)
ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
lib.llama_model_quantize_default_params.restype = Params
lib.llama_model_quantize.argtypes = [c_char_p, c_char_p, POINTER(Params)]
quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
lib.llama_log_set(quiet, None)
lib.llama_backend_init()
params = lib.llama_model_quantize_default_params()
assert params.quantize_output and not params.pure, "the declarations are of another version"
params.threads, params.type, params.pure = 1, MXFP4_MOE, True  # pure: all matrices, not only those of experts
print("ready", flush=True)
for _ in sys.stdin:
    if os.path.exists(result):
        os.remove(result)
    start = time.perf_counter()
    assert lib.llama_model_quantize(source.encode(), result.encode(), params) == 0
    quantized = time.perf_counter() - start
    with open(result) as file:
        os.fsync(file.fileno())
    print(quantized, time.perf_counter() - start, flush=True)
