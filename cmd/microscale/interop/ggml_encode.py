"""Encodes rows by the quantizers of ggml in C, for ggml_encode_test.go: ggml_encode.py LIBRARIES DIRECTORY TYPE=NUMBER...

LIBRARIES is the folder of the shared libraries of one version of llama.cpp. DIRECTORY has rows (float32, of 512) and importance
(float32, lines of 512); it gets TYPE.N.blocks for line N of importance, and TYPE.plain.blocks without it.
"""

import ctypes
import glob
import os
import sys

import numpy

COLUMNS = 512
libraries, folder, types = sys.argv[1], sys.argv[2], [t.split("=") for t in sys.argv[3:]]
ggml = ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml-base*.so*"))[0])
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
rows = numpy.fromfile(os.path.join(folder, "rows"), dtype="<f4").reshape(-1, COLUMNS)
weights = numpy.fromfile(os.path.join(folder, "importance"), dtype="<f4").reshape(-1, COLUMNS)
for name, number in types:
    for line in ["plain", *range(len(weights))]:
        blocks = numpy.zeros(rows.size * 2, dtype="u1")  # no type has two bytes an element
        chosen = None if line == "plain" else numpy.ascontiguousarray(weights[line]).ctypes.data
        n = ggml.ggml_quantize_chunk(int(number), rows.ctypes.data, blocks.ctypes.data, 0, rows.shape[0], COLUMNS, chosen)
        blocks[:n].tofile(os.path.join(folder, f"{name}.{line}.blocks"))
