"""Decodes random blocks, a fifth of them of bytes at edges, of ggml's types with the Python package gguf.

arguments: folder; it gets TYPE.blocks and TYPE.values (float32) for each type
"""
import sys
from pathlib import Path

import gguf
import numpy

numpy.seterr(all="ignore")
BLOCKS = 500
rng = numpy.random.default_rng(1)
for name in "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0".split():
    kind = gguf.GGMLQuantizationType[name]
    blocks = rng.integers(0, 256, (BLOCKS, gguf.GGML_QUANT_SIZES[kind][1]), dtype=numpy.uint8)
    blocks[:100] = rng.choice(numpy.array([0, 1, 127, 128, 255], dtype=numpy.uint8), blocks[:100].shape)
    blocks[100:102] = [[0], [255]]
    values = gguf.quants.dequantize(blocks, kind).astype("<f4")
    out = Path(sys.argv[1])
    (out / f"{name}.blocks").write_bytes(blocks.tobytes())
    (out / f"{name}.values").write_bytes(values.tobytes())
