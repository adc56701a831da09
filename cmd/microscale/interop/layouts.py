"""Scale layouts of other libraries, for layouts_test.go.

    python layouts.py DIRECTORY ROWSxBLOCKS...

reads DIRECTORY/ROWSxBLOCKS.in, one-byte scales in row-major order, and writes torchao's
to_blocked of them to ROWSxBLOCKS.swizzled, its inverse of that to ROWSxBLOCKS.back, and
AITER's e8m0_shuffle, written as the reshape that its documentation gives, to
ROWSxBLOCKS.shuffled."""

import pathlib
import sys

import numpy
import torch
from torchao.prototype.mx_formats.utils import from_blocked, to_blocked

directory = pathlib.Path(sys.argv[1])
for shape in sys.argv[2:]:
    rows, blocks = map(int, shape.split("x"))
    scales = torch.from_numpy(numpy.fromfile(directory / f"{shape}.in", dtype="u1").reshape(rows, blocks))
    swizzled = to_blocked(scales)
    (directory / f"{shape}.swizzled").write_bytes(swizzled.contiguous().numpy().tobytes())
    (directory / f"{shape}.back").write_bytes(from_blocked(swizzled, rows, blocks).contiguous().numpy().tobytes())
    padded = torch.zeros(-(-rows // 256) * 256, -(-blocks // 8) * 8, dtype=torch.uint8)
    padded[:rows, :blocks] = scales
    r, c = padded.shape
    shuffled = padded.view(r // 32, 2, 16, c // 8, 2, 4).permute(0, 3, 5, 2, 4, 1)
    (directory / f"{shape}.shuffled").write_bytes(shuffled.contiguous().numpy().tobytes())
