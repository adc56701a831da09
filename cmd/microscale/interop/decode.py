"""Decodes a quantized checkpoint with NumPy alone, for minilm_test.go.

    python decode.py SOURCE.safetensors DIRECTORY OUT.json

DIRECTORY has config.json and model.safetensors, in the layout of
compressed-tensors or in the plain one of this project. Written from the
descriptions of formats and layouts, not from this project's code. OUT.json has
of every quantized weight, and of every float32 tensor that the directory has
rounded to BF16, the SHA-256 of its float32 values and their signal-to-noise ratio in dB:
{name: {"quantized", "sha256", "sqnr_db"}}. BF16 that is not the source rounded
to nearest, ties to even, ends the program.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
from safetensors import deserialize, safe_open


def minifloat(exponent, mantissa, bias, nan=()):
    """The values of all codes of a format: sign, exponent, mantissa."""
    values = []
    for code in range(1 << (1 + exponent + mantissa)):
        e = code >> mantissa & (1 << exponent) - 1
        m = code & (1 << mantissa) - 1
        magnitude = (m if e == 0 else m + (1 << mantissa)) * 2.0 ** (max(e, 1) - bias - mantissa)
        sign = -1.0 if code >> (exponent + mantissa) else 1.0
        values.append(np.nan if code in nan else sign * magnitude)
    return np.array(values, np.float32)


E4M3 = minifloat(4, 3, 7, {0x7F, 0xFF})
ELEMENTS = {
    "e4m3": E4M3,
    "e5m2": minifloat(5, 2, 15, {c | s for c in range(0x7C, 0x80) for s in (0, 0x80)}),
    "e3m2": minifloat(3, 2, 3),
    "e2m3": minifloat(2, 3, 1),
    "e2m1": minifloat(2, 1, 1),
    "int8": (np.arange(256).astype(np.uint8).view(np.int8) / 64).astype(np.float32),
    "s4": ((np.arange(16) + 8) % 16 - 8).astype(np.float32),
    "s8": np.arange(256).astype(np.uint8).view(np.int8).astype(np.float32),
}
E8M0 = np.exp2(np.arange(256, dtype=np.float64) - 127).astype(np.float32)

# element, rows and columns of a block (0: all of the tensor)
FORMATS = {
    "mxfp8": ("e4m3", 1, 32),
    "mxfp8-e5m2": ("e5m2", 1, 32),
    "mxfp6-e3m2": ("e3m2", 1, 32),
    "mxfp6-e2m3": ("e2m3", 1, 32),
    "mxfp4": ("e2m1", 1, 32),
    "mxint8": ("int8", 1, 32),
    "nvfp4": ("e2m1", 1, 16),
    "fp8-tensor": ("e4m3", 0, 0),
    "fp8-row": ("e4m3", 1, 0),
    "fp8-vec128": ("e4m3", 1, 128),
    "fp8-block128": ("e4m3", 128, 128),
    "mxfp8-32x32": ("e4m3", 32, 32),
    "nvfp4-16x16": ("e2m1", 16, 16),
    "int4-g32": ("s4", 1, 32),
    "int4-g64": ("s4", 1, 64),
    "int4-g128": ("s4", 1, 128),
    "int8-g128": ("s8", 1, 128),
    "int8-row": ("s8", 1, 0),
}

# type, strategy, bits and group size of compressed-tensors
STRATEGIES = {
    ("float", "group", 8, 32): "mxfp8",
    ("float", "group", 4, 32): "mxfp4",
    ("float", "tensor_group", 4, 16): "nvfp4",
    ("float", "tensor", 8, None): "fp8-tensor",
    ("float", "channel", 8, None): "fp8-row",
    ("float", "block", 8, None): "fp8-block128",
    ("int", "group", 4, 32): "int4-g32",
    ("int", "group", 4, 64): "int4-g64",
    ("int", "group", 4, 128): "int4-g128",
    ("int", "group", 8, 128): "int8-g128",
    ("int", "channel", 8, None): "int8-row",
}


def codes(raw, rows, element):
    """The codes of a matrix from the bytes of its rows."""
    packed = np.frombuffer(raw, np.uint8).reshape(rows, -1)
    if element in ("e2m1", "s4"):  # two in a byte, the first in the low half
        return np.stack([packed & 15, packed >> 4], -1).reshape(rows, -1)
    if element in ("e3m2", "e2m3"):  # four in three bytes, a stream of bits from the lowest on
        b = packed.reshape(rows, -1, 3).astype(np.uint32)
        word = b[..., 0] | b[..., 1] << 8 | b[..., 2] << 16
        return np.stack([word >> 6 * i & 63 for i in range(4)], -1).reshape(rows, -1)
    return packed


def spread(scales, rows, cols, block_rows, block_cols):
    """A scale for every element."""
    scales = np.repeat(scales, block_rows or rows, 0)[:rows]
    return np.repeat(scales, block_cols or cols, 1)[:, :cols]


def decode(tensors, weight, name, shape, client):
    element, block_rows, block_cols = FORMATS[name]
    rows, cols = shape
    held = held_by(tensors, weight)
    stored = codes(held["data"], rows, element)
    if held["dtype"] == "I32":  # in offset binary
        stored = stored ^ (8 if element == "s4" else 128)
    values = ELEMENTS[element][stored][:, :cols]
    stored = tensors[weight + "_scale"]
    scales = np.frombuffer(stored["data"], {"F32": np.float32, "BF16": np.uint16}.get(stored["dtype"], np.uint8))
    if stored["dtype"] == "BF16":
        scales = (scales.astype(np.uint32) << 16).view(np.float32)
    elif stored["dtype"] == "U8":
        scales = E8M0[scales]
    elif stored["dtype"] == "F8_E4M3":
        scales = E4M3[scales]
    scales = scales.reshape(stored["shape"] if len(stored["shape"]) == 2 else (1, 1))
    if client and name == "nvfp4":  # the file has a divisor
        scales = scales / np.frombuffer(tensors[weight + "_global_scale"]["data"], np.float32)
    elif name.startswith("nvfp4"):
        scales = scales * np.frombuffer(tensors[weight + "_scale_2"]["data"], np.float32)
    return spread(scales, rows, cols, block_rows, block_cols) * values


def held_by(tensors, weight):
    """The tensor of the codes of a weight."""
    return tensors[weight + "_packed" if weight + "_packed" in tensors else weight]


def weights(directory, tensors):
    """Name, block format and shape of every quantized weight, and whether its layout is that of a client."""
    with safe_open(directory / "model.safetensors", framework="np") as opened:
        metadata = opened.metadata()
    for key, text in metadata.items():
        if key.startswith("microscale."):
            entry = json.loads(text)
            yield key.removeprefix("microscale."), entry["format"], entry["shape"], False
    quantization = json.loads((directory / "config.json").read_text())["quantization_config"]
    if quantization["quant_method"] != "compressed-tensors":
        return
    (group,) = quantization["config_groups"].values()
    args = group["weights"]
    name = STRATEGIES[args["type"], args["strategy"], args["num_bits"], args["group_size"]]
    for key in tensors:
        weight = key.removesuffix("_scale")
        if key.endswith(".weight_scale") and weight.removesuffix(".weight") not in quantization["ignore"]:
            held = held_by(tensors, weight)
            rows, width = held["shape"]
            yield weight, name, (rows, width * {"I32": 32, "U8": 8}.get(held["dtype"], args["num_bits"]) // args["num_bits"]), True


def result(got, want, quantized):
    signal = np.square(want.astype(np.float64)).sum()
    noise = np.square(got.astype(np.float64) - want).sum()
    return {
        "quantized": quantized,
        "sha256": hashlib.sha256(got.tobytes()).hexdigest(),
        "sqnr_db": 10 * np.log10(signal / noise),
    }


def main(source, directory, out):
    directory = pathlib.Path(directory)
    originals = dict(deserialize(pathlib.Path(source).read_bytes()))
    tensors = dict(deserialize((directory / "model.safetensors").read_bytes()))
    results = {}
    for weight, name, shape, client in weights(directory, tensors):
        got = decode(tensors, weight, name, shape, client)
        assert got.dtype == np.float32 and got.shape == tuple(shape)
        want = np.frombuffer(originals[weight]["data"], np.float32).reshape(shape)
        results[weight] = result(got, want, True)
    for name, original in originals.items():
        if original["dtype"] != "F32" or tensors.get(name, original)["dtype"] != "BF16":
            continue
        want = np.frombuffer(original["data"], np.float32)
        bits = want.view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        stored = np.frombuffer(tensors[name]["data"], np.uint16)
        assert np.array_equal(stored, rounded), name
        got = (stored.astype(np.uint32) << 16).view(np.float32)
        if not np.array_equal(got, want):
            results[name] = result(got, want, False)
    pathlib.Path(out).write_text(json.dumps(results))


main(*sys.argv[1:])
