"""llama.cpp's decoding of a model of random blocks, for decode_linux_test.go:
python decode_libllama.py LIBRARIES FILE TYPE

Writes FILE, a GGUF of the shape of Llama-3.2-1B whose matrices are of a type (MXFP4, NVFP4, Q8_0), and
loads it. Each line of standard input is a JSON object {"threads": T, "tokens": N, "step": S}: it adds N
tokens to an empty context, S at a time, and prints the seconds of the fastest step, and those of processors for it.
"""

import ctypes
import glob
import json
import os
import sys
import time
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint32, c_void_p

import gguf

import random_llama

libraries, path, kind = sys.argv[1], sys.argv[2], gguf.GGMLQuantizationType[sys.argv[3]]


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


rest = ("rest", c_void_p * 16)  # at least as long as the members that are not declared
ModelParams = struct("ModelParams", ("pointers", c_void_p * 2), ("numbers", c_int32 * 5), ("more", c_void_p * 4), ("vocab_only", c_bool), ("check_tensors", c_bool), ("use_extra_bufts", c_bool), rest)
ContextParams = struct(
    "ContextParams",
    *[(n, c_uint32) for n in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq")],
    *[(n, c_int32) for n in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type", "pooling_type", "attention_type", "flash_attn_type")],
    *[(n, c_float) for n in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")],
    ("yarn_orig_ctx", c_uint32), ("defrag_thold", c_float), ("callback", c_void_p * 2), ("type_k", c_int32), ("type_v", c_int32), rest,
)
Batch = struct("Batch", ("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", c_void_p), ("pos", POINTER(c_int32)), ("n_seq_id", POINTER(c_int32)), ("seq_id", POINTER(POINTER(c_int32))), ("logits", POINTER(c_int8)))

random_llama.write(path, kind)
ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
for name, returned, arguments in [
    ("llama_model_default_params", ModelParams, []),
    ("llama_context_default_params", ContextParams, []),
    ("llama_model_load_from_file", c_void_p, [c_char_p, ModelParams]),
    ("llama_init_from_model", c_void_p, [c_void_p, ContextParams]),
    ("llama_batch_init", Batch, [c_int32] * 3),
    ("llama_get_memory", c_void_p, [c_void_p]),
    ("llama_memory_clear", None, [c_void_p, c_bool]),
    ("llama_set_n_threads", None, [c_void_p, c_int32, c_int32]),
    ("llama_decode", c_int32, [c_void_p, Batch]),
    ("llama_get_logits", POINTER(c_float), [c_void_p]),
]:
    getattr(lib, name).restype, getattr(lib, name).argtypes = returned, arguments
quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
lib.llama_log_set(quiet, None)
lib.llama_backend_init()
params = lib.llama_model_default_params()
assert params.use_extra_bufts and not params.vocab_only, "the declarations are of another version"
model = lib.llama_model_load_from_file(path.encode(), params)
assert model, "no model"
params = lib.llama_context_default_params()
assert (params.n_ctx, params.n_batch, params.type_k, params.type_v) == (512, 2048, 1, 1), "the declarations are of another version"
ctx = lib.llama_init_from_model(model, params)
batch = lib.llama_batch_init(params.n_ctx, 0, 1)
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    lib.llama_set_n_threads(ctx, request["threads"], request["threads"])
    lib.llama_memory_clear(lib.llama_get_memory(ctx), True)
    times, busy = [], []
    step = request["step"]
    for first in range(0, request["tokens"], step):
        batch.n_tokens = step
        for i in range(step):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = first + i, first + i, 1, i == step - 1
            batch.seq_id[i][0] = 0
        start, begun = time.perf_counter(), time.process_time()
        assert lib.llama_decode(ctx, batch) == 0
        lib.llama_get_logits(ctx)
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - begun)
    print(json.dumps({"time": min(times), "busy": min(busy)}), flush=True)
