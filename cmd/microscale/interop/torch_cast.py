"""Casts with PyTorch, for torchcast_test.go.

    python torch_cast.py DIRECTORY TYPE...

reads DIRECTORY/inputs.f32 (little-endian float32) and writes DIRECTORY/TYPE.encoded, the
code of each input, for each of PyTorch's types."""

import pathlib
import sys

import numpy
import torch

directory = pathlib.Path(sys.argv[1])
inputs = torch.from_numpy(numpy.fromfile(directory / "inputs.f32", dtype="<f4"))
for name in sys.argv[2:]:
    codes = inputs.to(getattr(torch, name)).view(torch.uint8)
    (directory / f"{name}.encoded").write_bytes(codes.numpy().tobytes())
