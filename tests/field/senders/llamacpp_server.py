"""Serve a tiny random model with llama.cpp's server, and a draft model that is almost the same.

Arguments: a directory for the models, and a port.
"""

import sys
import time
from pathlib import Path

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType

WIDTH, HIDDEN, HEADS, LAYERS, CONTEXT = 32, 64, 2, 2, 2048
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
TYPES = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]


def write(path: Path, noise: float) -> None:
    """Write a model with random weights; noise makes it another one."""
    random, other = np.random.default_rng(7), np.random.default_rng(8)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(TYPES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def tensor(name: str, *shape: int) -> None:
        weights = random.normal(0, 1, shape) + noise * other.normal(0, 1, shape)
        writer.add_tensor(name, weights.astype(np.float32))

    tensor("token_embd.weight", len(TOKENS), WIDTH)
    tensor("output.weight", len(TOKENS), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        tensor(f"blk.{layer}.ffn_gate.weight", HIDDEN, WIDTH)
        tensor(f"blk.{layer}.ffn_up.weight", HIDDEN, WIDTH)
        tensor(f"blk.{layer}.ffn_down.weight", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


directory, port = Path(sys.argv[1]), int(sys.argv[2])
write(directory / "target.gguf", 0.0)
write(directory / "draft.gguf", 0.05)
parameters = xllamacpp.CommonParams()
parameters.model.path = str(directory / "target.gguf")
parameters.speculative.draft.mparams.path = str(directory / "draft.gguf")
parameters.model_alias = {"tiny"}
kinds = xllamacpp.common_speculative_type
parameters.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
parameters.speculative.draft.n_max = 3
parameters.speculative.draft.p_min = 0.0
parameters.n_ctx = CONTEXT
parameters.n_parallel = 1
parameters.port = port
parameters.chat_template = "chatml"
parameters.sampling.temp = 0.0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
time.sleep(3600)
