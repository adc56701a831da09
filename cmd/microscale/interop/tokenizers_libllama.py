"""Writes the ids of llama.cpp for vocabularies under other names of pre-tokenizers, for tokenizers_libllama_test.go:

    python tokenizers_libllama.py LIBRARIES OUT TEXTS SEED

OUT/cases.json is a JSON object {NAME: {"file": GGUF, "model": MODEL, "pre": PRE}}. MODEL and PRE replace the names of
the model and of the pre-tokenizer; with PRE null, the file stays as it is. OUT/NAME.jsonl has {"text": …, "ids": …} for each text, and {"ends": …} with the tokens that end an answer. Vocabularies that the library
does not load are left out.
"""
import ctypes
import glob
import json
import os
import sys
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_void_p
from pathlib import Path
from struct import pack as struct_pack, unpack as struct_unpack

from tokenizers_ids import texts


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


ModelParams = struct("ModelParams", ("pointers", c_void_p * 2), ("numbers", c_int32 * 5), ("more", c_void_p * 4), ("vocab_only", c_bool),
                     ("check_tensors", c_bool), ("use_extra_bufts", c_bool), ("rest", c_void_p * 16))


def load(libraries):
    ctypes.CDLL(glob.glob(os.path.join(libraries, "libggml.v*.so"))[0]).ggml_backend_load_all_from_path(libraries.encode())
    lib = ctypes.CDLL(glob.glob(os.path.join(libraries, "libllama.v*.so"))[0])
    for name, returned, arguments in [
        ("llama_model_default_params", ModelParams, []),
        ("llama_model_load_from_file", c_void_p, [c_char_p, ModelParams]),
        ("llama_model_free", None, [c_void_p]),
        ("llama_model_get_vocab", c_void_p, [c_void_p]),
        ("llama_vocab_n_tokens", c_int32, [c_void_p]),
        ("llama_vocab_is_eog", c_bool, [c_void_p, c_int32]),
        ("llama_tokenize", c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
    ]:
        getattr(lib, name).restype, getattr(lib, name).argtypes = returned, arguments
    lib.quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
    lib.llama_log_set(lib.quiet, None)
    lib.llama_backend_init()
    return lib


def string(text):
    data = text.encode()
    return struct_pack("<Q", len(data)) + data


def rename(source, target, model, pre):
    """Writes a GGUF file without tensors with other names of the model and the pre-tokenizer."""
    data = Path(source).read_bytes()
    count = 16  # of keys, after the magic number, the version and the number of tensors
    for key, value in [("tokenizer.ggml.model", model), ("tokenizer.ggml.pre", pre)]:
        start = string(key) + struct_pack("<I", 8)  # a string
        at = data.find(start)
        if at < 0:
            (keys,) = struct_unpack("<Q", data[count : count + 8])
            data = data[:count] + struct_pack("<Q", keys + 1) + start + string(value) + data[count + 8 :]
            continue
        at += len(start)
        (size,) = struct_unpack("<Q", data[at : at + 8])
        data = data[:at] + string(value) + data[at + 8 + size :]
    Path(target).write_bytes(data)


def main(libraries, out, count, seed):
    lib = load(libraries)
    out = Path(out)
    for name, case in json.loads((out / "cases.json").read_text()).items():
        path = case["file"]
        if case["pre"] is not None:
            path = str(out / "renamed.gguf")
            rename(case["file"], path, case["model"], case["pre"])
        params = lib.llama_model_default_params()
        params.vocab_only = True
        model = lib.llama_model_load_from_file(path.encode(), params)
        if not model:  # its name is newer than the library
            continue
        vocab = lib.llama_model_get_vocab(model)
        with open(out / f"{name}.jsonl", "w", encoding="utf8") as file:
            for text in texts(int(count), int(seed)):
                data = text.encode()
                buffer = (c_int32 * (4 * len(data) + 16))()
                n = lib.llama_tokenize(vocab, data, len(data), buffer, len(buffer), False, True)
                print(json.dumps({"text": text, "ids": buffer[:n]}), file=file)
            if case["pre"] is None:
                ends = [i for i in range(lib.llama_vocab_n_tokens(vocab)) if lib.llama_vocab_is_eog(vocab, i)]
                print(json.dumps({"ends": ends}), file=file)
        lib.llama_model_free(model)


main(*sys.argv[1:])
