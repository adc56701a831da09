"""Loads the checkpoints of conformance/checkpoints with vLLM's loaders, as conformance_clients.py does with transformers:

    python conformance_vllm.py PROGRAM RESULT DIRECTORY...

Its kernels are stubs (load_vllm.py): values are those that codes, scales and what vLLM makes of global scales give. Scales of
activations are those of the files, unless one is missing, or fused weights have several.
"""

import sys

import load_vllm  # first: it replaces kernels
import conformance_clients
import torch
from safetensors.torch import load_file


def weights(model):
    """Yields the weights of a model of transformers, each expert alone."""
    for name, p in model.named_parameters():
        p, (head, _, last) = p.detach().float(), name.rpartition(".")
        if p.dim() != 3:
            yield name.removesuffix(".weight"), p
            continue
        projections = ("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)
        for e, expert in enumerate(p):
            yield from zip((f"{head}.{e}.{projection}" for projection in projections), expert.chunk(len(projections)))


def compare(directory, values):
    try:
        model, loaded = load_vllm.load(directory)
        want = dict(weights(values))
        tensors = load_file(directory / "model.safetensors")
        other, inputs, seen = 0, 0, set()
        for name, w, scale in load_vllm.decoded(model):
            if name in want:
                seen.add(name)
                other += w.shape != want[name].shape or not torch.allclose(w, want[name], rtol=2**-7, atol=0)
            if scale is not None:
                own = tensors.get(name + ".input_scale")
                if own is None and (divisor := tensors.get(name + ".input_global_scale")) is not None:
                    own = 1 / divisor
                inputs += own is None or not 0 < scale < float("inf") or abs(own.item() - scale) > 2**-20 * scale
    except Exception as e:
        return {"rejected": f"{type(e).__name__}: {e}"}
    missing = sorted(want.keys() - seen)
    if missing:
        raise ValueError(f"not compared: {missing}")
    return {"other": other, "inputs": inputs, "report": []}


if __name__ == "__main__":
    conformance_clients.main(sys.argv[1], sys.argv[2], sys.argv[3:], compare)
