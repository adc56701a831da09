"""The quantizers of Model Optimizer, for bits_modelopt_test.go: see bits.py."""

import warnings

import torch
from modelopt.torch.export.quant_utils import get_scaling_factor, to_quantized_weight
from modelopt.torch.quantization.config import QuantizerAttributeConfig
from modelopt.torch.quantization.nn import TensorQuantizer
from modelopt.torch.quantization.qtensor import MXFP8QTensor, NVFP4QTensor

import bits

warnings.simplefilter("ignore")  # of what NaN and zeros are replaced by


def fp8(x, axis):
    """Returns codes and scales as unified_export_hf.py computes them."""
    quantizer = TensorQuantizer(QuantizerAttributeConfig(num_bits=(4, 3), axis=axis))
    if axis is None:
        quantizer.amax = x.abs().amax().float()
        scale = torch.tensor(quantizer.amax.item() / quantizer.maxbound)
        return to_quantized_weight(x, scale, "fp8"), scale
    quantizer.amax = x.abs().amax(dim=-1, keepdim=True).float()
    scale = get_scaling_factor(quantizer).reshape(-1)
    return to_quantized_weight(x, scale, "fp8_pc_pt"), scale


def quantize(x, job):
    format = job["format"]
    if format == "mxfp8":
        codes, scales = MXFP8QTensor.quantize(x)
        return codes._quantized_data, scales, None
    if format == "nvfp4":
        codes, scales, scale = NVFP4QTensor.quantize(x, 16)
        return bits.nibbles(codes._quantized_data), scales, scale
    codes, scales = fp8(x, None if format == "fp8-tensor" else 0)
    return codes, scales, None


bits.run(quantize)
