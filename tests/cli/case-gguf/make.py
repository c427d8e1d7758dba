"""Writes a GGUF model of one layer and a vocabulary of bytes and a few words."""
import struct
import sys

WIDTH, VOCAB = 32, 3 + 256 + 4


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name, kind, form, value):
    return text(name) + struct.pack("<I", kind) + (text(value) if form == "s" else struct.pack(form, value))


def array(name, kind, form, values):
    body = b"".join(text(v) if form == "s" else struct.pack(form, v) for v in values)
    return text(name) + struct.pack("<IIQ", 9, kind, len(values)) + body


words = ["\u2581", "a", "b", "ab"]
tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + words
keys = [key("general.architecture", 8, "s", "llama")]
keys += [key(f"llama.{name}", 4, "<I", value) for name, value in (
    ("block_count", 1), ("context_length", 64), ("embedding_length", WIDTH), ("feed_forward_length", WIDTH),
    ("attention.head_count", 2), ("attention.head_count_kv", 1))]
keys += [key("llama.attention.layer_norm_rms_epsilon", 6, "<f", 1e-5),
         key("tokenizer.ggml.model", 8, "s", "llama"),
         array("tokenizer.ggml.tokens", 8, "s", tokens),
         array("tokenizer.ggml.scores", 6, "<f", [0.0] * 259 + [-4.0, -3.0, -2.0, -1.0]),
         array("tokenizer.ggml.token_type", 5, "<i", [2, 3, 3] + [6] * 256 + [1] * 4),
         key("tokenizer.ggml.bos_token_id", 4, "<I", 1), key("tokenizer.ggml.eos_token_id", 4, "<I", 2)]
shapes = {"token_embd": (WIDTH, VOCAB), "output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,),
          "blk.0.ffn_norm": (WIDTH,), "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (WIDTH, WIDTH // 2),
          "blk.0.attn_v": (WIDTH, WIDTH // 2), "blk.0.attn_output": (WIDTH, WIDTH),
          "blk.0.ffn_gate": (WIDTH, WIDTH), "blk.0.ffn_up": (WIDTH, WIDTH), "blk.0.ffn_down": (WIDTH, WIDTH)}
infos, data, state = b"", b"", 1
for name, sizes in shapes.items():
    count = 1
    for size in sizes:
        count *= size
    values = []
    for _ in range(count):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        values.append(state / 2**30 - 1 if len(sizes) == 2 else 1.0)
    infos += text(name + ".weight") + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, len(data))
    data += struct.pack(f"<{count}f", *values)
header = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + infos
with open(sys.argv[1], "wb") as file:
    file.write(header + bytes(-len(header) % 32) + data)
