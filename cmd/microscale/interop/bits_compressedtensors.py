"""The quantizers of compressed-tensors, for bits_compressedtensors_test.go: see bits.py."""

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

import bits

E4M3 = torch.float8_e4m3fn
FORMATS = {
    "mxfp8": (MXFP8QuantizationCompressor, dict(num_bits=8, strategy="group", group_size=32, scale_dtype=torch.uint8, zp_dtype=torch.bfloat16)),
    "mxfp4": (MXFP4PackedCompressor, dict(num_bits=4, strategy="group", group_size=32, scale_dtype=torch.uint8, zp_dtype=torch.bfloat16)),
    "nvfp4": (NVFP4PackedCompressor, dict(num_bits=4, strategy="tensor_group", group_size=16, scale_dtype=E4M3, zp_dtype=E4M3)),
    "fp8-tensor": (NaiveQuantizationCompressor, dict(num_bits=8, strategy="tensor")),
    "fp8-row": (NaiveQuantizationCompressor, dict(num_bits=8, strategy="channel")),
    "fp8-block128": (NaiveQuantizationCompressor, dict(num_bits=8, strategy="block", block_structure=[128, 128])),
    **{f"int4-g{n}": (PackedQuantizationCompressor, dict(type="int", num_bits=4, strategy="group", group_size=n)) for n in (32, 64)},
    "int8-row": (NaiveQuantizationCompressor, dict(type="int", num_bits=8, strategy="channel")),
}
SCHEMES = {}


def quantize(x, job):
    compressor, options = FORMATS[job["format"]]
    if job["format"] not in SCHEMES:
        args = QuantizationArgs(**{"type": "float", "symmetric": True, **options})
        SCHEMES[job["format"]] = QuantizationScheme(targets=["Linear"], weights=args)
    scheme = SCHEMES[job["format"]]
    args = scheme.weights
    state = {"weight": x}
    if args.strategy in ("group", "tensor_group"):
        least, most = torch.aminmax(x.unflatten(-1, (-1, args.group_size)), dim=-1)
    elif args.strategy == "channel":
        least, most = torch.aminmax(x, dim=-1, keepdim=True)
    else:
        least, most = (v.reshape(1, 1) for v in torch.aminmax(x))
    decode = None
    if job["format"] == "nvfp4":
        state["weight_global_scale"] = generate_gparam(least.amin(), most.amax())
        decode = 1 / state["weight_global_scale"]
    state["weight_scale"], state["weight_zero_point"] = calculate_qparams(least, most, args, state.get("weight_global_scale"))
    state = compressor.compress(state, scheme)
    scale = state["weight_scale"]
    if args.type == "int":
        packed = state.get("weight_packed")
        return state["weight"] if packed is None else bits.nibbles(packed) ^ 8, scale, None  # from offset binary
    if "weight_packed" in state:
        return bits.nibbles(state["weight_packed"]), scale, decode
    return state["weight"].view(torch.uint8), scale if scale.dtype == torch.uint8 else scale.float(), decode


bits.run(quantize)
