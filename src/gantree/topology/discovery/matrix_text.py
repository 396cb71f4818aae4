"""The text of an `nvidia-smi topo -m` print made into a grid of words with line numbers; what it means is next door.

The print is a table for people. Its columns are set apart by tabs or by any number of spaces, so only the order of
words can be relied on, never a character position. The header underlines itself with ANSI codes, which survive in
saved files, sometimes without their escape character. Around the table people paste prompts, legends and other
output; narrow terminals wrap header and rows; forums and excerpts cut rows or leave rows out. This module finds the
header, joins what was wrapped, and tells which rows end early. It judges no cell.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from gantree.model.errors import BadInput
from gantree.topology.discovery.lookalikes import is_peer_status, what_instead

TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
"""Titles of the columns after the devices, in the order in which drivers print those they know."""
MAX_DEVICES = 512
"""More columns than this are no machine, and would make an N x N table of nonsense."""

_ANSI = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]|\x1b.?"
)
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NIC = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]*")
_TITLE_WORDS = frozenset(word for title in TITLES for word in title.split())
_CELL = re.compile(r"X|SOC|PIX|PXB|PHB|NODE|SYS|NV[0-9]+")
_AFFINITY = re.compile(r"N/A|[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*,?")
_LEGEND_ENTRY = re.compile(r"\s*(NIC[0-9]+)\s*:\s*(\S+)\s*")
_ELLIPSIS = frozenset({"...", "…", "[...]"})


@dataclass(slots=True)
class Row:
    """A row: its device, its line (from 1), the words in device columns, and the words after them by title.

    cut: the row ends before its last device column, so its last word may be a fragment. A list that was cut ("24-")
    is left out of the tail.
    """

    device: str
    line: int
    cells: list[str] = field(default_factory=list)
    tail: dict[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """The table: devices in column order, titles of the columns after them, rows in print order, NIC legend."""

    header_line: int
    devices: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[Row, ...]
    device_of_nic: dict[str, str]
    ignored_from_line: int | None = None

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPU columns."""
        return tuple(name for name in self.devices if _GPU.fullmatch(name))

    @property
    def nics(self) -> tuple[str, ...]:
        """Names of the other columns."""
        return tuple(name for name in self.devices if not _GPU.fullmatch(name))


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    words: tuple[str, ...]


def read_grid(text: str, source: str) -> Grid:
    """Find the matrix in a text. BadInput, naming the source, where there is none, or more than one."""
    lines = _lines(text)
    start = next((i for i, line in enumerate(lines) if _is_header(line.words)), None)
    if start is None:
        raise BadInput(f"{source}: no `nvidia-smi topo -m` matrix; {what_instead(text)}")
    header, body = _header(lines[start:])
    devices = tuple(takewhile(lambda word: word not in _TITLE_WORDS, header))
    if len(devices) > MAX_DEVICES:
        raise BadInput(
            f"{source}:{lines[start].number}: {len(devices)} columns; at most {MAX_DEVICES}"
        )
    titles = _titles(header[len(devices) :])
    end = next((i for i, line in enumerate(body) if _is_header(line.words)), len(body))
    second = body[end].number if end < len(body) else None
    if second is not None and not _is_peer_matrix(body[end:]):
        first = lines[start].number
        raise BadInput(
            f"{source}: two matrices, from line {first} and from line {second}; give one"
        )
    rows = tuple(_rows(body[:end], devices, titles))
    cells = [word for row in rows for word in row.cells]
    if not any(map(is_link_word, cells)) or any(map(is_peer_status, cells)):
        raise BadInput(f"{source}: no `nvidia-smi topo -m` matrix; {what_instead(text)}")
    return Grid(lines[start].number, devices, titles, rows, _legend(body), second)


def _lines(text: str) -> list[_Line]:
    """Split into lines numbered from 1, without ANSI codes and byte order mark."""
    plain = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cleaned = (_ANSI.sub("", line).replace("\x00", "") for line in plain)
    return [
        _Line(number, line, tuple(line.split())) for number, line in enumerate(cleaned, start=1)
    ]


def _is_header(words: Sequence[str]) -> bool:
    """Tell whether words are column names: GPUs first, then NICs, then titles, and nothing else."""
    devices = list(takewhile(lambda word: word not in _TITLE_WORDS, words))
    if not devices or not _GPU.fullmatch(devices[0]):
        return False
    if len(words) == 1 and devices[0] != "GPU0":
        return False
    named = all(_is_device(word) for word in devices)
    return named and all(word in _TITLE_WORDS for word in words[len(devices) :])


def _is_device(word: str) -> bool:
    return not _CELL.fullmatch(word) and bool(_GPU.fullmatch(word) or _NIC.fullmatch(word))


def _header(lines: Sequence[_Line]) -> tuple[list[str], Sequence[_Line]]:
    """Return the words of the header with its wrapped lines, and the lines after it."""
    words = list(lines[0].words)
    for i, line in enumerate(lines[1:], start=1):
        known = all(_is_device(word) or word in _TITLE_WORDS for word in line.words)
        if not line.words or not known or _repeats(line.words, words):
            return words, lines[i:]
        words += line.words
    return words, ()


def _repeats(more: Sequence[str], words: Sequence[str]) -> bool:
    return any(word in words for word in more if word not in _TITLE_WORDS)


def _titles(words: Sequence[str]) -> tuple[str, ...]:
    """Return the titles that words spell, as far as they spell any; the last may have been cut."""
    left = " ".join(words)
    found = []
    for title in TITLES:
        if left.startswith(title) or (left and title.startswith(left)):
            found.append(title)
            left = left[len(title) :].lstrip()
    return tuple(found)


def _rows(
    lines: Sequence[_Line], devices: tuple[str, ...], titles: tuple[str, ...]
) -> Iterator[Row]:
    """Yield the rows, joining those that a terminal wrapped."""
    pending: tuple[int, list[str], str] | None = None
    for line in lines:
        words = line.words
        starts = _starts_row(words, devices)
        if pending and not starts and words and _continues(pending[1], words, len(devices)):
            pending[1].extend(words)
            continue
        if pending:
            yield _row(*pending, devices, titles)
        pending = (line.number, list(words), line.text) if starts else None
    if pending:
        yield _row(*pending, devices, titles)


def _starts_row(words: Sequence[str], devices: tuple[str, ...]) -> bool:
    """Tell whether a line is a row and not a sentence about a GPU: cells have no small letters."""
    if not words or not (words[0] in devices or _GPU.fullmatch(words[0])):
        return False
    return len(words) == 1 or words[1] == words[1].upper()


def is_link_word(word: str) -> bool:
    """Tell whether a word may stand in a device column."""
    return bool(_CELL.fullmatch(word))


def _continues(row: Sequence[str], more: Sequence[str], columns: int) -> bool:
    """Tell whether a line goes on where a wrapped row stopped: cells, then affinities, nothing else."""
    cells = list(takewhile(_CELL.fullmatch, more))
    full = len(row) - 1 + len(cells)
    return full <= columns and all(_AFFINITY.fullmatch(word) for word in more[len(cells) :])


def _row(
    line: int, words: list[str], text: str, devices: tuple[str, ...], titles: tuple[str, ...]
) -> Row:
    cells = list(takewhile(lambda word: word not in _ELLIPSIS, words[1 : 1 + len(devices)]))
    short = next((i for i, word in enumerate(cells) if _AFFINITY.fullmatch(word)), None)
    if (
        short is not None
    ):  # fewer cells than columns, yet the row goes on: the meaning module refuses it
        return Row(words[0], line, cells[: short + 1])
    tail = _joined_lists(words[1 + len(devices) :])
    if _first_tail_cell_is_blank(text, len(devices)):
        titles = titles[1:]
    told = {title: word for title, word in zip(titles, tail, strict=False) if word[-1] not in "-,"}
    return Row(words[0], line, cells, told, len(cells) < len(devices))


def _joined_lists(words: Sequence[str]) -> list[str]:
    """Join lists of CPUs that were printed with a space after the comma."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].endswith(","):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _first_tail_cell_is_blank(text: str, columns: int) -> bool:
    """Tell whether a row with tabs has nothing under the first title but something further right."""
    tail = text.split("\t")[1 + columns :]
    return bool(tail) and not tail[0].strip() and any(cell.strip() for cell in tail)


def _is_peer_matrix(lines: Sequence[_Line]) -> bool:
    row = next((line.words for line in lines[1:] if line.words), ())
    return any(is_peer_status(word) for word in row[1:])


def _legend(lines: Sequence[_Line]) -> dict[str, str]:
    """Return what the NIC legend says: column name -> device."""
    entries = (_LEGEND_ENTRY.fullmatch(line.text) for line in lines)
    return {entry[1]: entry[2] for entry in entries if entry}
