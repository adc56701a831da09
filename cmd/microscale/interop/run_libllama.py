"""The cross-entropy of a text under GGUF files by llama.cpp, for architectures_loss_test.go:
python run_libllama.py LIBRARIES TEXT CONTEXT RESULT FILE...

LIBRARIES is the folder of the shared libraries of one version of llama.cpp, whose C API is
declared here as far as it is called. RESULT becomes a JSON object: for each FILE the nats
per byte, or the error of llama.cpp.
"""

import ctypes
import glob
import json
import os
import sys
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint32, c_void_p

import numpy as np

libraries, text, context, result, files = sys.argv[1], open(sys.argv[2], "rb").read(), int(sys.argv[3]), sys.argv[4], sys.argv[5:]


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

ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
for name, returned, arguments in [
    ("llama_model_default_params", ModelParams, []),
    ("llama_context_default_params", ContextParams, []),
    ("llama_model_load_from_file", c_void_p, [c_char_p, ModelParams]),
    ("llama_init_from_model", c_void_p, [c_void_p, ContextParams]),
    ("llama_model_get_vocab", c_void_p, [c_void_p]),
    ("llama_vocab_n_tokens", c_int32, [c_void_p]),
    ("llama_batch_init", Batch, [c_int32] * 3),
    ("llama_get_memory", c_void_p, [c_void_p]),
    ("llama_memory_clear", None, [c_void_p, c_bool]),
    ("llama_decode", c_int32, [c_void_p, Batch]),
    ("llama_get_logits", POINTER(c_float), [c_void_p]),
    ("llama_free", None, [c_void_p]),
    ("llama_model_free", None, [c_void_p]),
]:
    getattr(lib, name).restype, getattr(lib, name).argtypes = returned, arguments

messages = []
log = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda level, line, _: messages.append(line.decode(errors="replace").strip()))
lib.llama_log_set(log, None)
lib.llama_backend_init()


def nats(path):
    messages.clear()
    params = lib.llama_model_default_params()
    assert params.use_extra_bufts and not params.vocab_only, "the declarations are of another version"
    params.use_extra_bufts = False  # kernels for AMX end in an illegal instruction with Q8_0
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        return {"rejected": next((m for m in messages if "error" in m), "no model")}
    params = lib.llama_context_default_params()
    assert (params.n_ctx, params.n_batch, params.type_k, params.type_v) == (512, 2048, 1, 1), "the declarations are of another version"
    params.n_ctx = params.n_batch = params.n_ubatch = context
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0  # F32
    ctx = lib.llama_init_from_model(model, params)
    vocabulary = lib.llama_model_get_vocab(model)
    size = lib.llama_vocab_n_tokens(vocabulary)
    tokens = list(text)  # the vocabulary is that of bytes
    total, count = 0.0, 0
    batch = lib.llama_batch_init(context, 0, 1)
    for start in range(0, len(tokens) - context + 1, context):
        lib.llama_memory_clear(lib.llama_get_memory(ctx), True)
        batch.n_tokens = context
        for i in range(context):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = tokens[start + i], i, 1, 1
            batch.seq_id[i][0] = 0
        assert lib.llama_decode(ctx, batch) == 0
        logits = np.ctypeslib.as_array(lib.llama_get_logits(ctx), (context, size))[:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(context - 1), tokens[start + 1 : start + context]]
        total += (np.log(np.exp(logits).sum(axis=1)) - chosen).sum()
        count += context - 1
    lib.llama_free(ctx)
    lib.llama_model_free(model)
    return {"nats": total / count} if np.isfinite(total) else {"rejected": str(total)}


results = {}
for path in files:
    try:
        results[path] = nats(path)
    except Exception as e:
        results[path] = {"rejected": f"{type(e).__name__}: {e}"}
with open(result, "w") as f:
    json.dump(results, f)
