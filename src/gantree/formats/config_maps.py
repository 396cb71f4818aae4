"""Files of other tools, each given as it is or as the Kubernetes ConfigMap that has its text under a key."""

from dataclasses import dataclass, field
from typing import Any

from gantree.formats.validation.forms import refuse
from gantree.formats.validation.locations import describe
from gantree.model.errors import Problem
from gantree.text.document import Table, read_documents

MAX_FILE_BYTES = 1024 * 1024


@dataclass(slots=True)
class Problems:
    """What is wrong in a file, collected while it is read."""

    found: list[Problem] = field(default_factory=list)

    def wrong_field(self, row: Table, name: str, allowed: str) -> None:
        """Note that a field of a mapping is wrong, or missing."""
        self.wrong(row.line_of(name), row.path_of(name), row.get(name), allowed)

    def wrong(self, line: int, where: str, value: Any, allowed: str) -> None:
        """Note what stands at a line and path, and what is allowed there."""
        self.found.append(Problem("", line, where, describe(value), allowed))


def read_top(text: str, source: str, key: str, content: str) -> tuple[Any, str]:
    """Return the first document of a file, or of the text that a ConfigMap has under a key, and its name in errors.

    content is what the key should have, in words. None for an empty file. Raises BadFields.
    """
    problems = Problems()
    documents = read_documents(text, source, problems.found, MAX_FILE_BYTES)
    refuse(problems.found, source)
    top = documents[0].value if documents else None
    if not isinstance(top, Table) or top.get("kind") != "ConfigMap":
        return top, source
    data = top.get("data")
    inner = data.get(key) if isinstance(data, Table) else None
    if isinstance(inner, str):
        return read_top(inner, f"{source} ({key})", key, content)
    problems.wrong(top.line_of("data"), f"data.{key}", inner, content)
    refuse(problems.found, source)
    return None, source
