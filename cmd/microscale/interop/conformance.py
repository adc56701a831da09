"""Runs the conformance corpus through its own decoder, and through one whose numbers are those of ml_dtypes, for conformance_test.go."""

import pathlib
import sys

import ml_dtypes
import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "conformance"))
import run

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
numbers = run.element


def element(name, codes):
    if name not in TYPES:
        return numbers(name, codes)
    return codes.astype(np.uint8).view(TYPES[name]).astype(np.float32)


with np.errstate(all="ignore"):
    print(run.check(run.decode))
    run.element = element
    print(run.check(run.decode))
    try:
        run.check(lambda *args: np.nextafter(run.decode(*args), np.float32(3)))
    except AssertionError as error:
        print(error)
