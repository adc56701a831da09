"""Small models for other tools to quantize, and what they decode; for foreign_*.py.

Each of these is run as

    python foreign_TOOL.py OUT

and writes, for each of its schemes, OUT/SCHEME/source, the unquantized model as
transformers saves it; OUT/SCHEME/model, the quantized one as the tool saves it;
and OUT/SCHEME/values.safetensors, the values of quantized weights by the tool's
own arithmetic. A GGUF file is OUT/SCHEME/model.gguf. OUT/SCHEME/rejected, a text, replaces them where the tool cannot
do it on a CPU.
"""

import pathlib
import sys
import traceback

import torch
from safetensors.torch import load_file, save_file

SIZES = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
             max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def llama(**members):
    """A Llama with random BF16 weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return made(LlamaForCausalLM, LlamaConfig(**{**SIZES, **members}))


def mixture(**members):
    """A Qwen3 MoE with four experts."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    return made(Qwen3MoeForCausalLM, Qwen3MoeConfig(**{**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, **members}))


def made(kind, config):
    torch.manual_seed(1)
    config.dtype = torch.bfloat16
    model = kind(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape) / 16)
    return model


def tokenizer():
    """A tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def tensors(directory):
    """All tensors of a saved model."""
    return {name: v for file in sorted(directory.glob("*.safetensors")) for name, v in load_file(file).items()}


def scaled(codes, scale):
    """FP8 codes times scales of the tensor, of rows or of blocks of 128×128, in FP32."""
    w, scale = codes.float(), scale.float()
    if scale.dim() == 2 and scale.shape[1] > 1 or len(scale.reshape(-1)) not in (1, len(w)):
        scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[: w.shape[0], : w.shape[1]]
    elif scale.numel() > 1:
        scale = scale.reshape(-1, 1)
    return w * scale


def run(schemes):
    """Calls each scheme, a function of its directory."""
    out = pathlib.Path(sys.argv[1])
    for name, make in schemes.items():
        directory = out / name
        directory.mkdir(parents=True)
        try:
            make(directory)
            if (directory / "model").is_dir():
                tokenizer().save_pretrained(directory / "model")
        except Exception as e:  # what the tool cannot do is a result
            traceback.print_exc()
            (directory / "rejected").write_text(f"{type(e).__name__}: {e}".replace("\n", " "))
        print(name, flush=True)


def save_values(directory, values):
    """Writes values of quantized weights in the dtype to which the tool rounds them."""
    save_file({name: v.detach().contiguous().clone() for name, v in values.items()}, directory / "values.safetensors")
