"""Run MMA-Sim on cases: run_mmasim.py DIR.

DIR/rows.tsv has a row for each unit: file, class, architecture, name of the
instruction in MMA-Sim, types of A, B and the result, K, type of the scales or
"-", scales of each operand. DIR/FILE.cases has its cases as "microscale mma
--raw" reads them, and DIR/FILE.results gets the results. DIR/instructions.txt
gets what MMA-Sim has: class, architecture, instruction, without M and N where
they do not matter.
"""

import os
import re
import sys

os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # ninja
os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(sys.prefix, "torch-extensions")

import numpy as np
import torch
from mmasim import amd, nv_ptx
from mmasim.amd import isa_mfma
from mmasim.nv_ptx import isa_mma, isa_tcgen05mma, isa_wgmma

torch.set_num_threads(1)
folder = sys.argv[1]

CLASSES = {
    "MMA": (nv_ptx.MMA, isa_mma.mma_shape_and_type),
    "MMABlockScale": (nv_ptx.MMABlockScale, isa_mma.mma_block_scale_shape_and_type),
    "WGMMA": (nv_ptx.WGMMA, isa_wgmma.wgmma_shape_and_type),
    "TCGen05MMA": (nv_ptx.TCGen05MMA, isa_tcgen05mma.tcgen05mma_shape_and_type),
    "TCGen05MMABlockScale": (nv_ptx.TCGen05MMABlockScale, isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type),
    "MFMA": (amd.MFMA, isa_mfma.arch_mfma_suffix),
}
FREE = ("WGMMA", "TCGen05MMA", "TCGen05MMABlockScale")  # classes in which M and N do not matter

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz,
    "ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn,
}


def operand(data, name, block_fp4):
    """Codes as the operands of MMA-Sim: data is [cases, K·bytes]."""
    if name in DTYPES:
        return torch.from_numpy(data.copy()).view(DTYPES[name])
    if block_fp4:  # two codes in a byte, the first in the high bits
        return torch.from_numpy(data[:, 0::2] << 4 | data[:, 1::2] & 15)
    if name == "e2m1":  # beside FP8: in bits 5 to 2
        return torch.from_numpy((data & 15) << 2)
    return torch.from_numpy(data & 63)


with open(os.path.join(folder, "instructions.txt"), "w") as out:
    for name, (_, table) in CLASSES.items():
        names = {(name, arch, re.sub(r"^m\d+n\d+", "", i) if name in FREE else i) for arch, list_ in table.items() for i in list_}
        for row in sorted(names):
            print("\t".join(row), file=out)

SIZES = {"f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2}
for row in open(os.path.join(folder, "rows.tsv")).read().splitlines():
    file, kind, arch, instruction, a, b, d, k, scale, scales = row.split("\t")
    k, scales = int(k), int(scales)
    op = CLASSES[kind][0](arch, instruction)
    assert op.k == k, (row, op.k)
    widths = [k * SIZES.get(a, 1), k * SIZES.get(b, 1), SIZES[d], scales, scales]
    data = np.fromfile(os.path.join(folder, file + ".cases"), dtype=np.uint8).reshape(-1, sum(widths))
    parts = np.split(data, np.cumsum(widths)[:-1], axis=1)
    fp4 = scale != "-" and k == 64
    arguments = [operand(parts[0], a, fp4), operand(parts[1], b, fp4), operand(parts[2], d, False).squeeze(-1)]
    if scale != "-":
        arguments += [operand(p, scale, False) for p in parts[3:]]
    result = op.dpa(*arguments).contiguous()
    assert result.dtype == DTYPES[d], (row, result.dtype)
    result.view(torch.uint8).numpy().tofile(os.path.join(folder, file + ".results"))
