"""A model without weights to download: a tokenizer trained on this repository's pages, and random numbers.

    DIRECTORY/llama/bin/python benchmarks/serving/tiny_model.py DIRECTORY

writes DIRECTORY/tiny, a model's directory as Hugging Face lays it out, for servers and load generators that want only a
tokenizer, and DIRECTORY/tiny.gguf, a Llama of two layers that llama.cpp runs. What it says means nothing; how long it
takes does. It runs in the environment of llama.cpp, which has `tokenizers` and `gguf`.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPECIAL = ("<s>", "</s>", "<unk>")
WORDS, HIDDEN, INNER, LAYERS, HEADS, CONTEXT = 2000, 64, 128, 2, 4, 4096
EPSILON = 1e-5
SPREAD = 0.05
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
NORMAL, CONTROL = 1, 3
"""Types of tokens as GGUF numbers them."""


def trained() -> Tokenizer:
    """A byte-level BPE of the words of the documentation."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pages = (page.read_text() for page in sorted(DOCS.glob("*.md")))
    tokenizer.train_from_iterator(pages, trainer)
    return tokenizer


def write_directory(place: Path, tokenizer: Tokenizer) -> None:
    """The files that `AutoTokenizer` and `AutoConfig` read."""
    place.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(place / "tokenizer.json"))
    begin, end, unknown = SPECIAL
    named = {"bos_token": begin, "eos_token": end, "unk_token": unknown}
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "chat_template": TEMPLATE,
            **named,
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "vocab_size": tokenizer.get_vocab_size(),
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": EPSILON,
            "bos_token_id": 0,
            "eos_token_id": 1,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
    }
    for name, content in files.items():
        (place / name).write_text(json.dumps(content, indent=1))


def write_gguf(path: Path, tokenizer: Tokenizer) -> None:
    """The same model with random weights, always the same."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(tokenizer.get_vocab_size())
    writer.add_file_type(0)
    _add_tokenizer(writer, tokenizer)
    _add_weights(writer, tokenizer.get_vocab_size())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types([CONTROL if word in SPECIAL else NORMAL for word, _ in words])
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_chat_template(TEMPLATE)


def _add_weights(writer: gguf.GGUFWriter, words: int) -> None:
    generator = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        numbers = (SPREAD * generator.standard_normal(shape)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", numbers)

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))

    add("token_embd", words, HIDDEN)
    add_norm("output_norm")
    add("output", words, HIDDEN)
    for layer in (f"blk.{number}" for number in range(LAYERS)):
        add_norm(f"{layer}.attn_norm")
        add_norm(f"{layer}.ffn_norm")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{layer}.{name}", HIDDEN, HIDDEN)
        add(f"{layer}.ffn_gate", INNER, HIDDEN)
        add(f"{layer}.ffn_up", INNER, HIDDEN)
        add(f"{layer}.ffn_down", HIDDEN, INNER)


def main() -> None:
    """Write both into the directory that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: tiny_model.py DIRECTORY")
    place = Path(sys.argv[1])
    tokenizer = trained()
    write_directory(place / "tiny", tokenizer)
    write_gguf(place / "tiny.gguf", tokenizer)
    print(place / "tiny", place / "tiny.gguf")


if __name__ == "__main__":
    main()
