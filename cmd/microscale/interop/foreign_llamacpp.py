"""Models quantized and saved by llama.cpp: python foreign_llamacpp.py OUT LIBRARIES (foreign.py)."""

import ctypes
import functools
import glob
import os
import sys
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_void_p

import gguf
import torch

import foreign

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


class Params(ctypes.Structure):
    _fields_ = [(n, c_int32) for n in ("threads", "type", "output", "embedding")] + [(n, c_bool) for n in ("requantize", "quantize_output", "only_copy", "pure")] + [("rest", c_void_p * 16)]


def renamed(name):
    if name in WHOLE:
        return WHOLE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def rotated(name, w, heads, back=False):
    """Rows in the order in which llama.cpp rotates queries and keys, or back (conversion of Llama in its repository)."""
    count = {"q_proj": heads[0], "k_proj": heads[1]}.get(name.split(".")[-2])
    if count is None:
        return w
    inner = (count, len(w) // count // 2, 2) if back else (count, 2, len(w) // count // 2)
    return w.reshape(*inner, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def write(model, path):
    c = model.config
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(c.head_dim)
    w.add_vocab_size(c.vocab_size)
    w.add_tokenizer_model("no_vocab")
    heads = c.num_attention_heads, c.num_key_value_heads
    for name, p in model.state_dict().items():
        w.add_tensor(renamed(name), rotated(name, p.float().numpy(), heads))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make(lib, number, directory):
    model = foreign.llama(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2)
    model.save_pretrained(directory / "source")
    whole, path = str(directory / "whole.gguf"), str(directory / "model.gguf")
    write(model, whole)
    params = lib.llama_model_quantize_default_params()
    params.threads, params.type, params.pure = 1, number, True  # pure: all matrices, not only those of experts
    if lib.llama_model_quantize(whole.encode(), path.encode(), params) != 0:
        raise ValueError("llama_model_quantize failed")
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    heads, values = (model.config.num_attention_heads, model.config.num_key_value_heads), {}
    for name, p in model.state_dict().items():
        t = stored[renamed(name)]
        if p.dim() > 1:
            values[name] = torch.from_numpy(rotated(name, gguf.quants.dequantize(t.data, t.tensor_type), heads, back=True).copy())
    foreign.save_values(directory, values)


def library(libraries):
    ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
    lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
    lib.llama_model_quantize_default_params.restype = Params
    lib.llama_model_quantize.argtypes = [c_char_p, c_char_p, POINTER(Params)]
    lib.llama_backend_init()
    return lib


# llama_ftype of llama.h
TYPES = {"Q8_0": 7, "MXFP4": 38, "NVFP4": 39, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25,
         "IQ4_XS": 30}
loaded = library(sys.argv[2])
foreign.run({name: functools.partial(make, loaded, number) for name, number in TYPES.items()})
