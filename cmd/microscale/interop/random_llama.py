"""Files of random weights of the shape of Llama-3.2-1B, for decode_libllama.py and convert_libllama.py."""

import gguf
import numpy as np

HIDDEN, WIDE, HEADS, KV, DIM, POSITIONS = 2048, 8192, 32, 8, 64, 4096

random = np.random.default_rng(1).integers(0, 256, 1 << 24, dtype=np.uint8)


def blocks(kind, rows, cols):
    """Random blocks of a quantized type, or values of BF16 in ±[2⁻⁷, 2⁻⁵)."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.resize(random, (rows * cols // block, size)).copy()
    if kind.name == "BF16":
        data[:, 1] = data[:, 1] & 0x80 | 0x3C
        return data.reshape(rows, -1)
    scale = {"MXFP4": bytes([120]), "NVFP4": bytes([8] * 4), "Q8_0": np.float16(0.0002).tobytes()}[kind.name]
    data[:, : len(scale)] = np.frombuffer(scale, np.uint8)
    return data.reshape(rows, -1)


def write(path, kind, layers=16, vocabulary=128256):
    """Writes a GGUF file whose matrices are of a type. The head is the embedding."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(layers)
    w.add_context_length(POSITIONS)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(WIDE)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(500000.0)
    w.add_rope_dimension_count(DIM)
    w.add_vocab_size(vocabulary)
    w.add_tokenizer_model("no_vocab")
    ones = np.ones(HIDDEN, np.float32)
    matrices = [("token_embd", vocabulary, HIDDEN)]
    for i in range(layers):
        for name, rows, cols in [("attn_q", HIDDEN, HIDDEN), ("attn_k", KV * DIM, HIDDEN), ("attn_v", KV * DIM, HIDDEN), ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", WIDE, HIDDEN), ("ffn_up", WIDE, HIDDEN), ("ffn_down", HIDDEN, WIDE)]:
            matrices.append((f"blk.{i}.{name}", rows, cols))
        w.add_tensor(f"blk.{i}.attn_norm.weight", ones)
        w.add_tensor(f"blk.{i}.ffn_norm.weight", ones)
    w.add_tensor("output_norm.weight", ones)
    for name, rows, cols in matrices:
        w.add_tensor(name + ".weight", blocks(kind, rows, cols), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
