"""Parses `gantree topo import KIND FILE... [KIND FILE...]` into sources, and the nodes that each describes.

A word that is the name of a kind begins a new kind; every other word is a file of the kind before it. A file of a
machine kind may be written NODES=FILE: then it describes these nodes only. The kind `nvml` has no file: it asks this
machine's driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gantree.cli.input.files import STDIN
from gantree.model.errors import BadInput
from gantree.text.hostlists import BadHostlist, count_nodes, expand

LIVE = "nvml"
"""The kind that is no file."""
THIS_MACHINE = "this-machine"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read as a kind; nodes is the hostlist before it, None where there is none."""

    kind: str
    file: str
    nodes: str | None = None


def source_files_of(
    words: Sequence[str], kinds: Sequence[str], unknown_kind: BadInput
) -> list[SourceFile]:
    """Split the words. BadInput where the first is no kind, a kind has no file, or standard input is read twice."""
    if not words or words[0] not in (*kinds, LIVE):
        raise unknown_kind
    found: list[SourceFile] = []
    begins = [number for number, word in enumerate(words) if word in (*kinds, LIVE)]
    for begin, end in zip(begins, [*begins[1:], len(words)], strict=True):
        if words[begin] == LIVE:
            found.append(SourceFile(LIVE, THIS_MACHINE))
            _refuse_file(words[begin + 1 : end])
            continue
        if end - begin == 1:
            raise BadInput(f"no file after {words[begin]}; a file of that name is ./{words[begin]}")
        found += [_file(words[begin], word) for word in words[begin + 1 : end]]
    if sum(each.file == STDIN for each in found) > 1:
        raise BadInput("standard input (-) can be read only once")
    return found


def names(hostlist: str, option: str) -> list[str]:
    """Return the names of a hostlist, or of several with commas between them. BadInput names where it was given."""
    try:
        found = [name for part in _parts(hostlist) if count_nodes(part) for name in expand(part)]
    except BadHostlist as error:
        raise BadInput(f"{option}: `{hostlist}` is no hostlist; allowed: {error}") from None
    return found


def _refuse_file(words: Sequence[str]) -> None:
    if words:
        raise BadInput(
            f"{LIVE} reads the driver of this machine and takes no file; found {words[0]}"
        )


def _file(kind: str, word: str) -> SourceFile:
    before, equals, after = word.partition("=")
    if not equals or Path(word).exists():
        return SourceFile(kind, word)
    names(before, word)  # refused before any file is read
    return SourceFile(kind, after, before)


def _parts(hostlist: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for sign in hostlist:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
