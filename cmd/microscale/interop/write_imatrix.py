"""Writes an importance matrix of llama.cpp for the tensors of a GGUF file, for ggufplan_test.go: write_imatrix.py FILE DIRECTORY

DIRECTORY gets imatrix.gguf, as llama-imatrix writes it, and imatrix.dat, in the form before, with other values. One tensor has no entry, and one
expert no token.
"""

import struct
import sys

import gguf
import numpy

source, folder = sys.argv[1:3]
rng = numpy.random.default_rng(5)
writer = gguf.GGUFWriter(folder + "/imatrix.gguf", "", use_temp_file=False)
writer.add_type("imatrix")
writer.kv_data[0].pop("general.architecture", None)
writer.add_array("imatrix.datasets", ["some.txt"])
writer.add_uint32("imatrix.chunk_count", 3)
writer.add_uint32("imatrix.chunk_size", 512)
entries = []
for t in gguf.GGUFReader(source).tensors:
    shape = [int(n) for n in t.shape]
    if len(shape) < 2 or not t.name.startswith("blk.") or t.name == "blk.1.attn_q.weight" or "gate_inp" in t.name:
        continue
    matrices = shape[2] if len(shape) > 2 else 1
    counts = rng.integers(1, 1000, (matrices, 1)).astype("<f4")
    sums = (counts * numpy.exp(rng.normal(size=(matrices, shape[0])))).astype("<f4")
    sums[0, ::7] = 0
    if matrices > 1:
        counts[1], sums[1] = 0, 0
    writer.add_tensor(t.name + ".in_sum2", sums)
    writer.add_tensor(t.name + ".counts", counts)
    entries.append((t.name.encode(), (numpy.where(counts > 0, sums / numpy.maximum(counts, 1), 1) * 3).astype("<f4")))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
with open(folder + "/imatrix.dat", "wb") as f:
    f.write(struct.pack("<i", len(entries)))
    for name, values in entries:
        f.write(struct.pack("<i", len(name)) + name + struct.pack("<ii", 3, values.size) + values.tobytes())
    f.write(struct.pack("<ii", 3, 8) + b"some.txt")
