"""The tokens of a request, as the engine will make them: the model's own tokenizer and chat template.

Both are read as `transformers` lays them out: tokenizer.json, tokenizer_config.json, chat_template.jinja. The template
runs in Jinja's sandbox. What an engine does with images, tools of its own and other APIs is not repeated: such requests
have no tokens here.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

MOST_TEXT = 64 * 1024
"""Characters of a prompt that count: what is beyond would take longer than it saves."""
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")  # fmt: skip
PASSED_ON = ("tools", "documents")


class PromptReader:
    """The tokenizer of one model. Raises OSError or ValueError for what cannot be read."""

    def __init__(self, directory: Path) -> None:
        text = (directory / "tokenizer.json").read_text(encoding="utf-8")
        try:
            self._tokenizer: Any = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{directory}/tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _config(directory / "tokenizer_config.json")
        self._special = {
            name: _content(config[name]) for name in SPECIAL if config.get(name) is not None
        }
        template = _template(directory, config)
        try:
            self._template = None if template is None else _environment().from_string(template)
        except jinja2.TemplateError as error:
            raise ValueError(f"{directory}: the chat template: {error}") from error

    def tokens(self, body: Mapping[str, Any]) -> Sequence[int] | None:
        """The tokens of an OpenAI request for completions or chat; None where they are not known."""
        messages, prompt = body.get("messages"), body.get("prompt")
        try:
            if isinstance(messages, list):
                text = self._rendered(messages, body)
                return None if text is None else self._encoded(text, special=False)
            while isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
                prompt = prompt[0]  # of several, the first
            if isinstance(prompt, str):
                return self._encoded(prompt, special=body.get("add_special_tokens") is not False)
        except (jinja2.TemplateError, ValueError, TypeError, LookupError, ArithmeticError):
            return None
        return prompt if isinstance(prompt, list) and prompt and _are_tokens(prompt) else None

    def _encoded(self, text: str, *, special: bool) -> Sequence[int]:
        found: list[int] = self._tokenizer.encode(text[:MOST_TEXT], add_special_tokens=special).ids
        return found

    def _rendered(self, messages: Sequence[Any], body: Mapping[str, Any]) -> str | None:
        """The text of a chat; None without a template, and where a message is more than text."""
        plain = [_plain(each) for each in messages]
        if self._template is None or any(each is None for each in plain):
            return None
        named = body.get("chat_template_kwargs")
        return self._template.render(
            messages=plain,
            add_generation_prompt=body.get("add_generation_prompt") is not False,
            **{name: body.get(name) for name in PASSED_ON},
            **self._special,
            **(named if isinstance(named, dict) else {}),
        )


def _are_tokens(values: Sequence[Any]) -> bool:
    return all(isinstance(each, int) and 0 <= each < 1 << 32 for each in values)


def _plain(message: Any) -> dict[str, Any] | None:
    """A message with its text in one piece, as engines hand it to templates that take text."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if not isinstance(content, list):
        return message
    texts = [each.get("text") for each in content if isinstance(each, dict)]
    if len(texts) != len(content) or not all(isinstance(each, str) for each in texts):
        return None
    return {**message, "content": "\n".join(map(str, texts))}


def _config(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{file}: found no mapping")
    return found


def _content(token: Any) -> str:
    """A special token: text, or a mapping with `content`."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _template(directory: Path, config: Mapping[str, Any]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {each["name"]: each["template"] for each in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


class _Generation(Extension):
    """`{% generation %}`: marks what an assistant wrote, for training; here it is text as any."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates of models find: as `transformers` has it."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    made.filters["tojson"] = _as_json
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)  # noqa: DTZ005 - as engines do
    return made


def _as_json(value: Any, indent: int | None = None, **more: Any) -> str:
    """JSON without the escapes for HTML that Jinja's own filter has."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **more)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
