"""Shared code of the scripts that run the quantizers of libraries: bits_LIBRARY.py DIRECTORY.

DIRECTORY/jobs.json lists jobs. Each has a "name", a "format" (ours), an "option" (of the
library), a "source" dtype and a shape: "tensors" matrices of "rows" x "cols", in NAME.in.
run() calls quantize(x, job) for each matrix, or once for all of a job, and writes what it
returns: codes, one byte each; scales, as stored; and the global decode scale or None.
"""

import json
import pathlib
import sys

import numpy


def load(directory, job):
    """Returns the matrices as an array of float32, or of uint16 for BF16."""
    dtype = {"f32": "<f4", "bf16": "<u2"}[job["source"]]
    data = numpy.fromfile(directory / f"{job['name']}.in", dtype=dtype)
    return data.reshape(job["tensors"], job["rows"], job["cols"])


def torch_load(directory, job):
    """Returns the matrices as a tensor of the job's dtype."""
    import torch

    x = load(directory, job)
    if job["source"] == "bf16":
        return torch.from_numpy(x.view("<i2")).view(torch.bfloat16)
    return torch.from_numpy(x)


def raw(x):
    """Returns the bytes of a NumPy array or of a tensor of PyTorch."""
    if isinstance(x, numpy.ndarray):
        return numpy.ascontiguousarray(x).tobytes()
    import torch

    return x.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def nibbles(packed):
    """Returns one code per byte from codes packed two to a byte, the first in the low half."""
    if isinstance(packed, numpy.ndarray):
        return numpy.stack([packed & 15, packed >> 4], axis=-1)
    import torch

    packed = packed.view(torch.uint8)
    return torch.stack([packed & 15, packed >> 4], dim=-1)


def run(quantize, load=torch_load):
    directory = pathlib.Path(sys.argv[1])
    for job in json.loads((directory / "jobs.json").read_text()):
        codes, scales, globals_ = [], [], []
        for x in load(directory, job):
            c, s, g = quantize(x, job)
            codes.append(raw(c))
            scales.append(raw(s))
            if g is not None:
                globals_.append(raw(g))
        (directory / f"{job['name']}.codes").write_bytes(b"".join(codes))
        (directory / f"{job['name']}.scales").write_bytes(b"".join(scales))
        (directory / f"{job['name']}.global").write_bytes(b"".join(globals_))
