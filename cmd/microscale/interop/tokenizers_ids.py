"""Writes a tokenizer.json for each vocabulary of llama.cpp's tests, and the ids and texts that
Python's package tokenizers has with it.

arguments: folder of ggml-vocab-*.gguf files, folder for results, number of random texts, seed
"""
import json
import random
import sys
from pathlib import Path

from gguf import GGUFReader
from tokenizers import Tokenizer

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"| ?[\p{P}\p{S}]+[\r\n]*" + TAIL)


def split(*patterns):
    steps = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
    return {"type": "Sequence", "pretokenizers": steps + [BYTES]}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]}

# Vocabulary, pre-tokenizer, normalizer, ignore_merges. The patterns of some do not belong to the
# vocabulary, but are tested with it too.
CASES = {
    "gpt-2": ("gpt-2", GPT2, None, False),
    "smollm": ("starcoder", DIGITS, None, False),
    "llama3": ("llama-bpe", split(LLAMA3), None, True),
    "qwen2": ("qwen2", split(QWEN2), "nfc", False),
    "qwen3.5": ("qwen35", split(QWEN35), "nfc", False),
    "o200k": ("llama-bpe", split(O200K), None, False),
    "tekken": ("llama-bpe", split(TEKKEN), None, True),
    "deepseek3": ("deepseek-llm", split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3), None, False),
    "llama2": ("llama-spm", None, "prepend", False),
    "phi3": ("phi-3", None, "prepend", False),
    "metaspace": ("llama-spm", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}, None, False),
    "metaspace-words": ("llama-spm", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, None, False),
    "gemma": ("llama-spm", {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, "replace", False),
}

SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
NORMALIZERS = {
    "prepend": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACES]},
    "replace": SPACES,
    "nfc": {"type": "NFC"},
}


def field(reader, name):
    value = reader.get_field(name)
    return None if value is None else value.contents()


def merges_of(tokens, scores):
    """The merges of a SentencePiece vocabulary, best first."""
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        pairs = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in ids and token[k:] in ids]
        merges += [(-scores[i], ids[a], ids[b], a, b) for a, b in pairs]
    merges.sort(key=lambda m: m[:3])
    return [[m[3], m[4]] for m in merges]


def build(folder, case):
    vocabulary, pre, normalizer, ignore = CASES[case]
    r = GGUFReader(folder / f"ggml-vocab-{vocabulary}.gguf")
    tokens = field(r, "tokenizer.ggml.tokens")
    types = field(r, "tokenizer.ggml.token_type")
    sentence_piece = field(r, "tokenizer.ggml.model") == "llama"
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": sentence_piece, "byte_fallback": sentence_piece, "ignore_merges": ignore}
    vocab = {}
    for i, t in enumerate(tokens):
        vocab.setdefault(t, i)
    model["vocab"] = vocab
    if sentence_piece:
        model["merges"] = merges_of(tokens, field(r, "tokenizer.ggml.scores"))
        model["unk_token"] = "<unk>"
    else:
        model["merges"] = field(r, "tokenizer.ggml.merges")
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": case == "phi3" and kind == 4,
              "normalized": case == "phi3" and kind == 4, "special": kind != 4}
             for i, kind in enumerate(types) if kind in (2, 3, 4)]  # unknown, control, user defined
    bos = field(r, "tokenizer.ggml.bos_token_id")
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": NORMALIZERS.get(normalizer), "pre_tokenizer": pre, "model": model}
    if bos is not None:
        name = tokens[bos]
        data["post_processor"] = {"type": "TemplateProcessing",
                                  "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                                  "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}}}
    space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    if not sentence_piece:
        data["decoder"] = BYTES | {"use_regex": True}
    elif case.startswith("metaspace"):
        data["decoder"] = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    else:
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if normalizer == "prepend" else []
        data["decoder"] = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}] + strip}
    return data


PICKED = [
    "", " ", "  ", "\n", "\t\n \r\n", "a", "Hello, wörld 1234  x\n\n日本語 🤷🏽", "I'm you'Re 'ſ 'S we'll can'T it'd they'VE", "'s't're've'm'll'd",
    "\u00a0x\u00a0", "a\u0085b", "e\u0301 e\u0301\u0323 \u1e69 \u0073\u0323\u0307", "a" * 200, "!" * 33, " " * 40 + "x", "x" + " " * 40, "\n" * 20,
    "0123456789 12 345 6789 ½ Ⅷ ٣", "\u200b\u200d\ufeff", "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪🇫🇷", "한국어 조선말 \u1100\u1161\u11a8", "ĞğİıŞş ǅ ǈ ʰ ﬁ", "ΑΒΓαβγς", "Привет, мир!",
    "def f(x):\n\treturn x**2  # comment\n\n\n", "https://example.com/a?b=c&d=e#f", "<s>", "</s>", "<unk>", "<|im_start|>user\nHi<|im_end|>", "<|begin_of_text|>x",
    "a<s>b", " <s> ", "<s><s>", "\x00\x01\x1c\x1f\x7f", "नमस्ते दुनिया", "สวัสดีชาวโลก", "مرحبا بالعالم", "שלום עולם", "ab\u0300" + "\u0301" * 9, "e" + "\u0301" * 40 + "x",
    "▁", "▁▁ ▁a", "<0x0A>", "\u2028\u2029\u3000", "\U0001f600" * 5, "camelCaseHTTPServer2XX", "YouTube iPhone JavaScript", "12345é 1234567x", "ABCdef GHI", "a/b//c/\n", "x\r\ny\r\rz", " \n \n ", "1,234,567.89",
]
ALPHABET = ([chr(c) for c in range(32, 127)] * 3 + list(" \n\t\r'") * 20 + list("äöüßéèñçøåžšćłőğı") * 3 + list("абвгдежзийклмноп") * 2 + list("αβγδεζηθ")
            + list("日本語中文字漢字かなカナ한국어") * 2 + list("😀👍🏽❤️🤷‍♂️") + list("\u0301\u0308\u0323\u00a0\u2009\u3000\u200d\u0085\u1e9e\u017f½Ⅷ٣"))
WORDS = ["the", " the", "Hello", " world", "'ll", "'S", "1234", "<s>", "<|im_start|>", "  ", "\n\n", "return", "straße", "日本", "🤷🏽", "ing", "HTTP", "fooBar"]


def texts(count, seed):
    rng = random.Random(seed)
    for text in PICKED:
        yield text
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.5:
                parts.append(rng.choice(WORDS))
            else:
                parts.append("".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 9))))
        yield "".join(parts)


def record(path, t, all_texts, seed):
    """Writes what tokenizer t makes of texts and of ids that no text has, one JSON object per line."""
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as f:
        for text, e in zip(all_texts, t.encode_batch(all_texts, add_special_tokens=False)):
            line = {"text": text, "ids": e.ids, "decoded": t.decode(e.ids, skip_special_tokens=False)}
            f.write(json.dumps(line) + "\n")
        for text in PICKED:
            ids = t.encode(text, add_special_tokens=True).ids
            f.write(json.dumps({"complete": text, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=True)}) + "\n")
        for _ in range(len(all_texts) // 4):
            ids = [rng.randrange(t.get_vocab_size()) if rng.random() < 0.7 else rng.randrange(300) for _ in range(rng.randrange(1, 9))]
            f.write(json.dumps({"ids": ids, "decoded": t.decode(ids, skip_special_tokens=True)}) + "\n")


def main():
    source, out, count, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    all_texts = list(texts(count, seed))
    for case in CASES:
        data = json.dumps(build(source, case), ensure_ascii=False)
        (out / f"{case}.json").write_text(data, encoding="utf-8")
        record(out / f"{case}.jsonl", Tokenizer.from_str(data), all_texts, seed)


if __name__ == "__main__":
    main()
