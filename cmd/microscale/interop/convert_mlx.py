"""Compares a weight in NVFP4 with MLX's quantizer on the CPU, for convert_mlx_test.go:
python convert_mlx.py SOURCE QUANTIZED WEIGHT

Prints a JSON object of counts.
"""

import json
import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)
source, quantized, name = mx.load(sys.argv[1]), mx.load(sys.argv[2]), sys.argv[3]
words, scales = mx.quantize(source[name], mode="nvfp4")[:2]
ours = quantized[name], quantized[name.removesuffix("weight") + "scales"]
counts = {
    "Words": words.size,
    "Scales": scales.size,
    "DifferentWords": mx.sum(words != ours[0]).item(),
    "DifferentScales": mx.sum(scales != ours[1]).item(),
    "Subnormal": mx.sum(scales < 8).item(),
}
print(json.dumps(counts))
