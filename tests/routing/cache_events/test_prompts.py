"""A request has the tokens that an engine makes of it, by the tokenizer and the chat template of the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.tokenizer import write_tokenizer

pytest.importorskip("tokenizers", reason="needs gantree[cache-events]")

from gantree.routing.cache_events.prompts import MOST_TEXT, PromptReader

USER = {"role": "user", "content": "replicas of a service"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> PromptReader:
    """Of a tokenizer that puts <s> in front of completions; its template is written below."""
    return PromptReader(write_tokenizer(tmp_path_factory.mktemp("tiny")))


def _text(reader: PromptReader, body: dict[str, Any]) -> str:
    tokens = reader.tokens(body)
    assert tokens is not None
    return str(reader._tokenizer.decode(list(tokens), skip_special_tokens=False))


def test_a_prompt_has_the_special_token_in_front_unless_it_is_not_wanted(
    reader: PromptReader,
) -> None:
    assert _text(reader, {"prompt": "a service"}) == "<s>a service"
    assert _text(reader, {"prompt": ["a service", "more"]}) == "<s>a service"
    assert _text(reader, {"prompt": "a service", "add_special_tokens": False}) == "a service"


def test_tokens_stay_as_they_are(reader: PromptReader) -> None:
    assert reader.tokens({"prompt": [5, 6, 7]}) == [5, 6, 7]
    assert reader.tokens({"prompt": [[5, 6], [7]]}) == [5, 6]


def test_a_chat_goes_through_the_template(reader: PromptReader) -> None:
    asked = "<s>user: replicas of a service</s>"
    assert _text(reader, {"messages": [USER]}) == f"{asked}<s>assistant: "
    assert _text(reader, {"messages": [USER], "add_generation_prompt": False}) == asked
    tools = [{"name": "é<"}]
    with_tools = _text(reader, {"messages": [USER], "tools": tools})
    assert with_tools.startswith('<s>tools [{"name": "é<"}]</s>')
    options = {"messages": [USER], "chat_template_kwargs": {"thinking": True}}
    assert _text(reader, options).endswith("<s>assistant: thinks: ")


def test_parts_of_text_are_lines(reader: PromptReader) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}
    assert _text(reader, {"messages": [message]}).startswith("<s>user: a\nb</s>")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": None},
        {"prompt": []},
        {"prompt": [-1]},
        {"messages": ["hello"]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"role": "none", "content": "the template refuses this role"}]},
        {"input": "of another API"},
    ],
)
def test_what_has_no_tokens_here_has_none(reader: PromptReader, body: dict[str, Any]) -> None:
    assert reader.tokens(body) is None


def test_a_long_prompt_counts_to_a_bound(reader: PromptReader) -> None:
    tokens = reader.tokens({"prompt": "word " * MOST_TEXT})
    assert tokens is not None
    assert len(tokens) <= MOST_TEXT + 1


def test_a_template_in_a_file_of_its_own_comes_first(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{%- for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert _text(PromptReader(tmp_path), {"messages": [USER]}) == USER["content"]


def test_the_default_of_several_templates_is_used(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]
    config.write_text(json.dumps({"chat_template": named, "bos_token": {"content": "<s>"}}))
    assert _text(PromptReader(tmp_path), {"messages": [USER]}) == "y"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{"),
        ("chat_template.jinja", "{% for"),
    ],
)
def test_files_that_cannot_be_read_say_so(tmp_path: Path, name: str, text: str) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"."):
        PromptReader(tmp_path)
