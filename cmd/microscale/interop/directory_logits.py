"""The logits of Hugging Face directories in transformers, in F32, for families_directory_test.go:
python directory_logits.py FOLDER

FOLDER/NAME/directory is a directory, FOLDER/NAME/expected.safetensors has tokens. FOLDER/NAME/directory.safetensors
gets the tokens and the logits.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

for path in sorted(Path(sys.argv[1]).glob("*/directory")):
    tokens = load_file(path.parent / "expected.safetensors")["tokens"]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(tokens.long()).logits
    save_file({"tokens": tokens, "logits": logits.contiguous()}, path.parent / "directory.safetensors")
