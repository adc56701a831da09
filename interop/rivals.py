"""Runs operations of other projects on one thread: python rivals.py

A request is a line of JSON: "by" (a program), "work", "format", the shape "m", "n", "k",
which is prepared and done once, or "times", how often to do it. The answer is a line:
"done", or why not."""

import ctypes
import itertools
import json
import os
import sys

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
FROM_MEMORY = 256e6  # bytes of weights that few rows are multiplied by, in turn


def by_torch(work, format, m, n, k):
    import torch

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


programs = {"torch": by_torch, "torchao": by_torchao, "ggml": by_ggml}
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
