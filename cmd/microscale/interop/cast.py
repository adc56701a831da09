"""Casts with ml_dtypes and NumPy, for mldtypes_test.go.

    python cast.py DIRECTORY

reads DIRECTORY/inputs.f32 (little-endian float32) and writes, for every
floating-point type T of ml_dtypes and NumPy's float16:

    T.decoded   the float32 value of each code, 0 first
    T.encoded   the code of each input, in one or two bytes
    types.txt   the names of the types, one in a line
"""

import pathlib
import sys

import ml_dtypes
import numpy

directory = pathlib.Path(sys.argv[1])
inputs = numpy.fromfile(directory / "inputs.f32", dtype="<f4")

types = {"float16": numpy.float16}
for name in dir(ml_dtypes):
    if name.startswith(("float", "bfloat")):
        types[name] = getattr(ml_dtypes, name)

numpy.seterr(all="ignore")  # overflow to infinity and NaN are what is asked for
for name, dtype in types.items():
    size = numpy.dtype(dtype).itemsize
    codes = numpy.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=f"<u{size}")
    codes.view(dtype).astype("<f4").tofile(directory / f"{name}.decoded")
    inputs.astype(dtype).view(f"<u{size}").tofile(directory / f"{name}.encoded")
(directory / "types.txt").write_text("\n".join(types) + "\n")
