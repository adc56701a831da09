"""Reads and writes safetensors files with the reference package, for safetensors_test.go.

    python container.py describe FILE OUT.json
    python container.py write PLAN.json FILE

describe writes {"metadata": …, "tensors": {name: {"dtype", "shape", "sha256"}}}.
write makes FILE of the tensors of a plan {"metadata": …, "tensors": [{"name",
"dtype", "shape", "data"}]}, with the dtype as NumPy spells it and the data in hex.
"""

import ctypes
import hashlib
import json
import pathlib
import sys

from safetensors import TensorSpec, deserialize, safe_open, serialize_file


def describe(file, out):
    with safe_open(file, framework="np") as opened:
        metadata = opened.metadata()
    tensors = {
        name: {
            "dtype": tensor["dtype"],
            "shape": tensor["shape"],
            "sha256": hashlib.sha256(tensor["data"]).hexdigest(),
        }
        for name, tensor in deserialize(pathlib.Path(file).read_bytes())
    }
    pathlib.Path(out).write_text(json.dumps({"metadata": metadata, "tensors": tensors}))


def write(plan, file):
    plan = json.loads(pathlib.Path(plan).read_text())
    buffers = []
    specs = {}
    for tensor in plan["tensors"]:
        data = bytes.fromhex(tensor["data"])
        buffers.append(ctypes.create_string_buffer(data, len(data)))
        specs[tensor["name"]] = TensorSpec(
            dtype=tensor["dtype"],
            shape=tensor["shape"],
            data_ptr=ctypes.addressof(buffers[-1]),
            data_len=len(data),
        )
    serialize_file(specs, file, metadata=plan["metadata"])


{"describe": describe, "write": write}[sys.argv[1]](*sys.argv[2:])
