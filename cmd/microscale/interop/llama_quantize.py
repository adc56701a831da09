"""Quantizes a GGUF file by llama.cpp's library, for ggufplan_test.go: llama_quantize.py LIBRARIES FILE DIRECTORY NAME=TYPE...

LIBRARIES is the folder of the shared libraries of one version of llama.cpp. DIRECTORY gets NAME.gguf of each general.file_type TYPE.
"""

import ctypes
import glob
import os
import sys
from ctypes import c_byte, c_char_p, c_int32

libraries, source, folder = sys.argv[1:4]


class Params(ctypes.Structure):
    _fields_ = [("threads", c_int32), ("file_type", c_int32), ("rest", c_byte * 248)]  # longer than llama_model_quantize_params


ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
lib.llama_model_quantize_default_params.restype = Params
lib.llama_model_quantize.argtypes = [c_char_p, c_char_p, ctypes.POINTER(Params)]
log = ctypes.CFUNCTYPE(None, c_int32, c_char_p, ctypes.c_void_p)(lambda level, line, _: level >= 4 and print(line.decode(), file=sys.stderr))
lib.llama_log_set(log, None)
lib.llama_backend_init()
for job in sys.argv[4:]:
    name, kind = job.split("=")
    params = lib.llama_model_quantize_default_params()
    params.threads, params.file_type = 1, int(kind)
    if lib.llama_model_quantize(source.encode(), os.path.join(folder, name + ".gguf").encode(), ctypes.byref(params)):
        raise SystemExit(f"{name} failed")
