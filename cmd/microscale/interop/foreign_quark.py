"""Models quantized and saved by AMD's Quark, on a CPU (foreign.py)."""

import functools

import torch
from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors, import_model_from_safetensors
from quark.torch.export.nn.modules.qparamslinear import QParamsLinear
from quark.torch.quantization.config.config import Int8PerChannelSpec, Int8PerGroupSpec, OCP_MXFP8E4M3Spec, OCP_MXINT8Spec, QLayerConfig

import foreign


def make(scheme, directory, model=foreign.llama, mode="quark", **options):
    quantized = model()
    quantized.save_pretrained(directory / "source")
    config = LLMTemplate.get(quantized.config.model_type).get_config(scheme=scheme, **options)
    quantizer = ModelQuantizer(config)
    quantized = quantizer.freeze(quantizer.quantize_model(quantized, [torch.arange(64).reshape(1, 64)]))
    with torch.no_grad():
        export_safetensors(quantized, str(directory / "model"), custom_mode=mode)
        loaded = import_model_from_safetensors(model(), str(directory / "model"))
    values = {}
    for name, module in loaded.named_modules():
        if isinstance(module, QParamsLinear):
            values[name + ".weight"] = module.weight_quantizer(module.weight.data)
    foreign.save_values(directory, values)


def register(name, weight, activations=None):
    """Adds a scheme that Quark has the parts of, and no name."""
    spec = weight(is_dynamic=False).to_quantization_spec()
    inputs = activations and activations(is_dynamic=True).to_quantization_spec()
    LLMTemplate.register_scheme(name, QLayerConfig(weight=spec, input_tensors=inputs))


mxfp8 = functools.partial(OCP_MXFP8E4M3Spec, ch_axis=-1)
register("mxfp8", mxfp8, mxfp8)
register("mxint8", functools.partial(OCP_MXINT8Spec, ch_axis=-1))
register("int8_channel", functools.partial(Int8PerChannelSpec, ch_axis=0))
register("int8_g128", functools.partial(Int8PerGroupSpec, ch_axis=-1, group_size=128))

SCHEMES = ["fp8", "ptpc_fp8", "mxfp4", "mxfp4_weight_only", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_mxfp6_e2m3", "mxfp4_fp8", "nvfp4", "amdfp4", "amdfp4_g32",
           "amdfp4_global16", "bfp16", "mxfp8", "mxint8", "int4_wo_32", "int4_wo_128", "int4_wo_per_channel", "uint4_wo_128", "uint4_wo_per_channel", "int4_wa_64",
           "int8", "int8_channel", "int8_g128", "int4_fp8"]
MIXED = {"*self_attn*": "ptpc_fp8", "*layers.1.mlp.down_proj": "mxfp6_e2m3"}
schemes = {name: functools.partial(make, name) for name in SCHEMES}
schemes["fp8 for vLLM"] = functools.partial(make, "fp8", mode="fp8")
schemes["fp8 with a KV cache"] = functools.partial(make, "fp8", kv_cache_scheme="fp8")
schemes["mxfp4 with a KV cache"] = functools.partial(make, "mxfp4", kv_cache_scheme="fp8")
schemes["mxfp4, fp8, mxfp6 by layers"] = functools.partial(make, "mxfp4", layer_config=MIXED, exclude_layers=["*lm_head", "*layers.0.mlp.*_proj"])
schemes["int4 and fp8 by layers"] = functools.partial(make, "int4_wo_128", layer_config={"*self_attn*": "fp8"})
foreign.run(schemes)
