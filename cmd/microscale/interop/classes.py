"""Writes the characters of a text that are not in a class, for classes_test.go: python classes.py OUT TEXT CLASS…

OUT/NUMBER.txt is the text for each class, such as \\p{Lu}, by its number.
"""
import sys
from pathlib import Path

import regex

everything = Path(sys.argv[2]).read_bytes().decode()
for i, name in enumerate(sys.argv[3:]):
    Path(sys.argv[1], f"{i}.txt").write_bytes(regex.sub(f"{name}+", "", everything).encode())
