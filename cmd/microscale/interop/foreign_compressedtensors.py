"""Models quantized and saved by compressed-tensors itself, in its schemes of block formats (foreign.py)."""

import functools

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.base import decompress_module
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

import foreign


def blocks(weight, args):
    """The amax of each group of elements with one scale."""
    w, strategy = weight.float().abs(), str(getattr(args.strategy, "value", args.strategy))
    if strategy == "tensor":
        return w.amax().reshape(1)
    if strategy == "channel":
        return w.amax(1, keepdim=True)
    if strategy in ("group", "tensor_group"):
        return w.reshape(len(w), -1, args.group_size).amax(-1)
    high, wide = args.block_structure
    padded = torch.nn.functional.pad(w, (0, -w.shape[1] % wide, 0, -w.shape[0] % high))
    return padded.reshape(padded.shape[0] // high, high, padded.shape[1] // wide, wide).amax((1, 3))


def calibrate(module):
    args, weight, options = module.quantization_scheme.weights, module.weight.data, {}
    amax = blocks(weight, args).to(weight.dtype)
    low, high = (-amax, amax) if args.symmetric else (-blocks(weight.clamp(max=0), args).to(weight.dtype), blocks(weight.clamp(min=0), args).to(weight.dtype))
    if hasattr(module, "weight_global_scale"):
        options["global_scale"] = generate_gparam(-module.weight.data.abs().amax(), module.weight.data.abs().amax())
        module.weight_global_scale.data.copy_(options["global_scale"])
    scale, zero = calculate_qparams(low, high, args, **options)
    module.weight_scale.data = scale.to(module.weight_scale.dtype).reshape(module.weight_scale.shape)
    if not args.symmetric:
        module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype).reshape(module.weight_zero_point.shape)
    for name, value in (("input_scale", 0.01), ("input_global_scale", 100.0)):
        if getattr(module, name, None) is not None:
            getattr(module, name).data.fill_(value)


def make(groups, directory, model=foreign.llama, ignore=("lm_head",)):
    model = model()
    model.save_pretrained(directory / "source")
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=list(ignore)))
    quantized = {n: m for n, m in model.named_modules() if getattr(m, "quantization_scheme", None) is not None}
    for module in quantized.values():
        calibrate(module)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(directory / "model")
    compressor.update_config(directory / "model")
    values = {}
    for name, module in quantized.items():
        decompress_module(module)
        values[name + ".weight"] = module.weight
    foreign.save_values(directory, values)


PRESETS = ["FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "NVFP4", "MXFP4A16", "MXFP4", "MXFP8A16", "MXFP8", "W4A16", "W8A8", "W8A16", "W4AFP8", "W4A8", "W4A16_ASYM", "W3A16", "W5A16"]
schemes = {name: functools.partial(make, {"group_0": preset_name_to_scheme(name, ["Linear"])}) for name in PRESETS}
schemes["mixed"] = functools.partial(make, {
    "group_0": preset_name_to_scheme("FP8_DYNAMIC", ["re:.*self_attn.*"]),
    "group_1": preset_name_to_scheme("NVFP4A16", ["re:.*(gate|up)_proj$"]),
    "group_2": preset_name_to_scheme("MXFP8A16", ["re:.*down_proj$"]),
})
for size in (32, 64):  # Kimi-K2's INT4 is that of 32
    scheme = preset_name_to_scheme("W4A16", ["Linear"])
    scheme.weights.group_size = size
    schemes[f"W4A16 {size}"] = functools.partial(make, {"group_0": scheme})
schemes["mixed integers"] = functools.partial(make, {
    "group_0": preset_name_to_scheme("W8A8", ["re:.*self_attn.*"]),
    "group_1": preset_name_to_scheme("W4A16", ["re:.*mlp.*"]),
})
schemes["FP8_BLOCK odd"] = functools.partial(make, {"group_0": preset_name_to_scheme("FP8_BLOCK", ["Linear"])},
                                            model=lambda: foreign.llama(hidden_size=192, intermediate_size=320, num_attention_heads=3))
foreign.run(schemes)
