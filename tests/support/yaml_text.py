"""YAML that tests read: parsed in C, and each text once in a process.

The parser in Python takes 0.2 s for a CustomResourceDefinition, and half of the CPU of a test that defines two.
"""

import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str) -> Any:
    """The only document of a text. It belongs to the caller."""
    (document,) = read_yaml_documents(text)
    return document


def read_yaml_documents(text: str) -> Iterator[Any]:
    """All documents of a text. They belong to the caller."""
    documents: list[Any] = pickle.loads(_read(text))
    return iter(documents)


@cache
def _read(text: str) -> bytes:
    """The documents as a pickle: to load that is the cheapest copy."""
    return pickle.dumps(list(yaml.load_all(text, LOADER)))
