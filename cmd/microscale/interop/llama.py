"""Compares a saved Llama with transformers', for llama_test.go.

    python llama.py torch|flax DIRECTORY...

Each DIRECTORY has model, which llama.Model.Save wrote, and expected.safetensors: of
a forward and a backward pass that round nothing the tokens and targets (sequences x
length), the loss (nats per token), the logits, and the gradient of each weight
under its name in the checkpoint.
transformers' own LlamaForCausalLM or FlaxLlamaForCausalLM computes the same in
float32, with the framework's derivatives.
"""

import sys

import numpy as np
from safetensors.numpy import load_file


def with_torch(directory, tokens, targets):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    assert AutoConfig.from_pretrained(directory).microscale == {"vocabulary": "bytes"}
    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32, attn_implementation="eager")
    logits = model(torch.from_numpy(tokens.astype(np.int64))).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets.astype(np.int64)).flatten())
    loss.backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return loss.item(), logits.detach().numpy(), gradients


def with_flax(directory, tokens, targets):
    import jax
    import jax.numpy as jnp
    from flax.traverse_util import flatten_dict
    from transformers import AutoConfig, FlaxLlamaForCausalLM, logging

    logging.set_verbosity_error()  # it would have BF16 weights cast to float32, as they are below
    jax.config.update("jax_default_matmul_precision", "highest")
    assert AutoConfig.from_pretrained(directory).microscale == {"vocabulary": "bytes"}
    model = FlaxLlamaForCausalLM.from_pretrained(directory, dtype=jnp.float32)
    params = jax.tree_util.tree_map(lambda p: jnp.asarray(p, jnp.float32), model.params)

    def forward(params):
        logits = model(tokens, params=params).logits
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
        return -chosen.mean(), logits

    (loss, logits), tree = jax.value_and_grad(forward, has_aux=True)(params)
    gradients = {}
    for path, g in flatten_dict(tree).items():
        g = np.asarray(g)
        gradients[".".join(path[:-1]) + ".weight"] = g.T if path[-1] == "kernel" else g
    return float(loss), np.asarray(logits), gradients


def compare(what, got, want, tolerance):
    assert got.shape == want.shape, (what, got.shape, want.shape)
    scale = np.abs(want).max()
    assert scale > 0, what
    error = np.abs(got - want).max() / scale
    assert error <= tolerance, f"{what}: the largest difference is {error:.3g} of the largest value"
    return error


def check(compute, directory):
    expected = load_file(f"{directory}/expected.safetensors")
    loss, logits, gradients = compute(f"{directory}/model", expected.pop("tokens"), expected.pop("targets"))
    difference = abs(loss - expected.pop("loss").item())
    assert difference <= 1e-5, f"the loss differs by {difference}"
    worst = compare("logits", expected.pop("logits").reshape(logits.shape), logits, 1e-5)
    assert gradients.keys() == expected.keys(), gradients.keys() ^ expected.keys()
    gradient = max(compare(name, expected[name], g, 5e-5) for name, g in gradients.items())
    return f"loss {loss:.4f}, off by {difference:.1e}; largest differences {worst:.1e} of logits, {gradient:.1e} of gradients"


framework, *directories = sys.argv[1:]
for directory in directories:
    print(directory.split("/")[-1], check({"torch": with_torch, "flax": with_flax}[framework], directory))
