"""Writes the ids and texts of Python's package tokenizers for each tokenizer.json in a folder, for
tokenizers_gguf_test.go: python tokenizers_gguf.py FOLDER TEXTS SEED

FOLDER has NAME.json; NAME.jsonl is written, as by tokenizers_ids.py.
"""
import sys
from pathlib import Path

from tokenizers import Tokenizer

from tokenizers_ids import record, texts

folder, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for file in sorted(folder.glob("*.json")):
    record(file.with_suffix(".jsonl"), Tokenizer.from_file(str(file)), list(texts(count, seed)), seed)
