"""Runs operations of other projects on one thread: python rivals.py

A request is a line of JSON: "by" (a program), "work", "format", the shape "m", "n", "k" (of
"train": "model", "sequences", "length" and "dtype"), which is prepared and done once, or "times",
how often to do it. The answer is a line: "done", or why not."""

import ctypes
import itertools
import json
import os
import sys

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
FROM_MEMORY = 256e6  # bytes of weights that few rows are multiplied by, in turn


def train_by_torch(model, sequences, length, dtype):
    """Returns a step of the model of package train: Llama's architecture with a head of its own,
    master weights and AdamW in float32, products in dtype: "bf16" (autocast) or "f32"."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(1)
    width, inner, heads, kv = (model[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"))
    size = width // heads
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, size, 2) / size))
    cos, sin = angles.cos(), angles.sin()

    def rotate(x):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, (heads + 2 * kv) * size, bias=False)
            self.o = nn.Linear(heads * size, width, bias=False)
            self.gate_up = nn.Linear(width, 2 * inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)
            self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)

        def forward(self, x):
            qkv = self.qkv(self.norm1(x)).view(sequences, length, heads + 2 * kv, size).transpose(1, 2)
            q, k, v = qkv.split((heads, kv, kv), 1)
            y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=kv < heads)
            x = x + self.o(y.transpose(1, 2).reshape(sequences, length, heads * size))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    net = nn.Sequential(
        nn.Embedding(model["vocab_size"], width),
        *(Layer() for _ in range(model["num_hidden_layers"])),
        nn.RMSNorm(width, 1e-5),
        nn.Linear(width, model["vocab_size"], bias=False),
    )
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, (0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(model["vocab_size"], (sequences, length + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = net(tokens[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_torch(work, format=None, m=0, n=0, k=0, **shape):
    import torch

    if work == "train":
        return train_by_torch(**shape)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if work == "quantize":  # fp8-tensor
        x = torch.randn(m, k)

        def quantize():
            scale = torch.finfo(torch.float8_e4m3fn).max / x.abs().amax()
            return (x * scale).to(torch.float8_e4m3fn), scale

        return quantize
    if format == "mxint8":  # without scales
        a, b = (torch.randint(-127, 128, (lines, k), dtype=torch.int8) for lines in (m, n))
        return lambda: torch._int_mm(a, b.t())
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[format]
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    copies = 1 if m > 1 else int(FROM_MEMORY / b.nbytes) + 1
    weights = itertools.cycle([b.clone() for _ in range(copies)])
    return lambda: torch.mm(a, next(weights).t())


def by_torchao(work, format, m, n, k):
    import torch
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.randn(m, k)
    if format == "nvfp4":
        scale = per_tensor_amax_to_scale(x.abs().amax())
        return lambda: NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale)
    element = {"mxfp8": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}[format]
    return lambda: MXTensor.to_mx(x, element, 32)


def by_ggml(work, format, m, n, k):
    import llama_cpp
    import numpy as np

    ggml = ctypes.CDLL(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so"))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    kind = next(i for i in range(64) if (ggml.ggml_type_name(i) or b"").decode() == format)
    x = np.random.default_rng(1).standard_normal((m, k), np.float32)
    codes = np.empty(m * k, np.uint8)
    size = ctypes.c_int64
    return lambda: ggml.ggml_quantize_chunk(kind, ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(codes.ctypes.data), size(0), size(m), size(k), None)


def by_ik(work, format, m, n, k):
    """Products by ik_llama.cpp, which quantizes the activations to 8 bits."""
    import ik_llama_cpp
    import numpy as np

    ggml = ctypes.CDLL(os.path.join(os.path.dirname(ik_llama_cpp.__file__), "lib", "libggml.so"))
    for name in ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_get_data"):
        getattr(ggml, name).restype = ctypes.c_void_p
    ggml.ggml_type_name.restype, ggml.ggml_nbytes.restype = ctypes.c_char_p, ctypes.c_size_t
    size, at = ctypes.c_int64, ctypes.c_void_p

    class InitParams(ctypes.Structure):
        _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", at), ("no_alloc", ctypes.c_bool)]

    def tensor(kind, rows):
        t = ggml.ggml_new_tensor_2d(at(context), kind, size(k), size(rows))
        return t, ctypes.c_void_p(ggml.ggml_get_data(at(t)))

    random = np.random.default_rng(1)
    kind = next(i for i in range(512) if (ggml.ggml_type_name(i) or b"").decode() == format)
    copies = 1 if m > 1 else int(FROM_MEMORY / (n * k * 17 / 32)) + 1
    context = ggml.ggml_init(InitParams(copies * n * k + 64 * m * (n + k) + (64 << 20), None, False))
    x, data = tensor(0, m)  # 0: F32
    values = random.standard_normal((m, k), np.float32)
    ctypes.memmove(data, values.ctypes.data, values.nbytes)
    values = random.standard_normal((n, k), np.float32)
    graphs = []
    for _ in range(copies):
        weights, data = tensor(kind, n)
        assert ggml.ggml_nbytes(at(weights)) == n * k * 17 // 32
        ggml.ggml_quantize_chunk(kind, ctypes.c_void_p(values.ctypes.data), data, size(0), size(n), size(k), None)
        graph = ggml.ggml_new_graph(at(context))
        ggml.ggml_build_forward_expand(at(graph), at(ggml.ggml_mul_mat(at(context), at(weights), at(x))))
        graphs.append(graph)
    turns = itertools.cycle(graphs)

    def multiply():
        assert ggml.ggml_graph_compute_with_ctx(at(context), at(next(turns)), 1) == 0

    return multiply


programs = {"torch": by_torch, "torchao": by_torchao, "ggml": by_ggml, "ik_llama.cpp": by_ik}
work = None
for line in sys.stdin:
    request = json.loads(line)
    try:
        if "by" in request:
            work = programs[request.pop("by")](**request)
        for _ in range(request.get("times", 1)):
            work()
        print("done", flush=True)
    except Exception as e:
        print(type(e).__name__, *str(e).split(), flush=True)
