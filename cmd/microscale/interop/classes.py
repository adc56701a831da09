"""Writes all characters of Unicode that are not in a class, for classes_test.go: python classes.py OUT CLASS…

OUT/NUMBER.txt is the text for each class, such as \\p{Lu}, by its number.
"""
import sys
from pathlib import Path

import regex

everything = "".join(chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)
for i, name in enumerate(sys.argv[2:]):
    Path(sys.argv[1], f"{i}.txt").write_bytes(regex.sub(f"{name}+", "", everything).encode())
