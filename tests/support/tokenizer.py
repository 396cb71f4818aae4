"""A tokenizer of a model, made by the library `tokenizers`: bytes, and the words of a few sentences."""

import json
from pathlib import Path

TEMPLATE = """\
{%- if tools %}<s>tools {{ tools | tojson }}</s>{% endif %}
{%- for message in messages %}
  {%- if message.role == 'none' %}{{ raise_exception('there is no such role') }}{% endif %}
  {{- bos_token + message.role }}: {{ message.content }}{{ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ bos_token }}assistant: {% if thinking %}thinks: {% endif %}{% endif %}"""
SENTENCES = ("a router sends requests to replicas of a service", "the cache holds words of prompts")


def write_tokenizer(directory: Path) -> Path:
    """Write the files that `transformers` reads; return the directory."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
