"""Checks a decoder of block-scaled formats against this directory. Needs numpy and safetensors.

    python run.py                    checks the decoder below
    from run import check            check(decode) in the tests of a project

decode(case, codes, scales, global_) returns float32 values of case["rows"] × case["cols"]: codes are bytes as stored, scales bytes,
float32 or the bits of BF16, global_ a float32 or None. case is an entry of corpus.json.
"""

import json
import pathlib

import numpy as np
from safetensors import deserialize

HERE = pathlib.Path(__file__).parent
DTYPES = {"U8": "u1", "F32": "<f4", "BF16": "<u2"}
# exponent bits, mantissa bits, bias, codes that are not finite from here on
FLOATS = {"e4m3": (4, 3, 7, 0x7F), "e5m2": (5, 2, 15, 0x7C), "e3m2": (3, 2, 3, 64), "e2m3": (2, 3, 1, 64), "e2m1": (2, 1, 1, 8)}


def element(name, codes):
    if name not in FLOATS:
        bits, unit = {"int8": (8, 2.0**-6), "s8": (8, 1.0), "s4": (4, 1.0)}[name]
        return (((codes.astype(np.int64) + (1 << bits - 1)) % (1 << bits)) - (1 << bits - 1)) * np.float32(unit)
    exponent, mantissa, bias, special = FLOATS[name]
    magnitude = codes & ((1 << exponent + mantissa) - 1)
    e, m = magnitude >> mantissa, (magnitude & ((1 << mantissa) - 1)).astype(np.float64)
    value = np.where(e == 0, m * 2.0 ** (1 - bias - mantissa), (1 + m / 2**mantissa) * 2.0 ** (e.astype(np.float64) - bias))
    value = np.where(magnitude >= special, np.nan, value)
    if name == "e5m2":
        value = np.where(magnitude == special, np.inf, value)
    return np.where(codes >> (exponent + mantissa) & 1, -value, value).astype(np.float32)


def decode(case, codes, scales, global_):
    bits = np.unpackbits(codes, axis=1, bitorder="little").reshape(len(codes), -1, case["bits"])
    codes = (bits * (1 << np.arange(case["bits"]))).sum(2)[:, : case["cols"]]
    if case["scale"] == "e8m0":
        scales = np.where(scales == 255, np.nan, 2.0 ** (scales.astype(np.float64) - 127)).astype(np.float32)
    elif case["scale"] == "e4m3":
        scales = element("e4m3", scales)
    elif case["scale"] == "bf16":
        scales = (scales.astype(np.uint32) << 16).view(np.float32)
    high, wide = (size or whole for size, whole in zip(case["block"], (case["rows"], case["cols"])))
    scales = scales.repeat(high, 0).repeat(wide, 1)[: case["rows"], : case["cols"]]
    if global_ is not None:
        scales = scales * np.float32(global_)
    return scales * element(case["element"], codes)


def check(decode):
    """Returns the number of cases, and raises AssertionError for the first value of other bits; any NaN equals any NaN."""
    cases = json.loads((HERE / "corpus.json").read_text())
    for case in cases:
        tensors = {
            name: np.frombuffer(bytes(t["data"]), DTYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in deserialize((HERE / case["file"]).read_bytes())
        }
        part = lambda name: tensors.get(f"{case['profile']}.{name}")
        global_ = part("global")[0] if case["global"] else None
        got, want = np.asarray(decode(case, part("codes"), part("scales"), global_), np.float32), part("decoded")
        other = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
        if other.any():
            raise AssertionError(f"{case['format']} by {case['profile']}: {np.argwhere(other)[0]}: {got[other][0]}, want {want[other][0]}")
    return len(cases)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        print(check(decode), "cases decode to the same bits")
