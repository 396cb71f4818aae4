"""The text of an `nvidia-smi topo` matrix as grids of words with line numbers; not interpreted here.

`topo -m` prints a matrix of link classes, `topo -p2p` one of statuses; people save both in one file. Each print is a
table for people. Its columns are set apart by tabs or by any number of spaces, so only the order of words can be relied
on, never a character position. The header underlines itself with ANSI codes, which survive in saved files, sometimes
without their escape character. People quote it, make it a comment or a Markdown table, and paste prompts, legends and
other output around it. Narrow terminals wrap header and rows, in the middle of a word too; others cut every line at
their width; forums and excerpts cut rows, leave rows out, or swallow the blanks between two cells. With `-nvme`, newer
drivers print disks too, as further columns or as a table of their own, which ends the matrix. This module finds the
header, joins wrapped lines, and finds the rows that end early. NICs whose columns were cut off the header are known by
their rows, or by the legend. It judges no cell.

One thing is found by position: which cells are under the titles after the devices, where a row has fewer of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from gantree.model.errors import BadInput
from gantree.topology.discovery.machines.input_errors.wrong_format import (
    is_peer_status,
    named_instead,
    what_instead,
)

TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
"""Titles of the columns after the devices, in the order in which drivers print those they know."""
MAX_DEVICES = 512
"""More columns than this are no machine, and would make an N x N table of nonsense."""
MAX_CHARS = 8 << 20
MAX_LINES = 200_000
"""A machine of 512 devices prints less than 3 MiB in 60,000 lines, if a terminal broke them; a log may be around it."""
_MAX_MATRICES = 8
"""One of links, and one for each option of `topo -p2p`."""
_MAX_JOINED_CHARS = 1 << 16
"""A line that a terminal broke is not put together again beyond this: 512 columns take a tenth of it."""

_ANSI = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]|\x1b[()*+][0-9A-Z]|\x1b.?"
)
_MARKS = re.compile(r"^[ \t]*[#>]+(?=[ \t])|\|")
"""What quotes, comments and Markdown tables put around lines and cells."""
_BLANK_CELL_GAP = 15
"""Columns of a terminal from a cell to the one after a blank one: two tabs of 8, less the blank before an X."""
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NIC = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]*")
_DISK = re.compile(r"nvme[0-9]{1,4}", re.IGNORECASE)
_SHORT_TITLE = "NUMA"
_TITLE_WORDS = frozenset(word for title in TITLES for word in title.split())
_LINK = re.compile(r"X|SOC|PIX|PXB|PHB|NODE|SYS|NV[0-9]+")
_LINKS_WITHOUT_BLANKS = re.compile(f"(?:{_LINK.pattern}){{2,}}")
"""No link class begins with the end of another, so "NODENODE" can be read in one way only."""
_P2P_OPTION = re.compile(r"-p2p(?:status)?[ =]+([a-z]{1,5})\b")
_AFFINITY = re.compile(r"N/A|[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*,?")
_LEGEND_ENTRY = re.compile(r"\s*(NIC[0-9]+)\s*:\s*(\S+)\s*")
_ELLIPSIS = frozenset({"...", "…", "[...]"})


@dataclass(slots=True)
class Row:
    """A row: its device, its line (from 1), the words in device columns, and the words after them by title.

    cut: the row ends before its last device column or in it, so its last word may be a fragment. A list that was cut
    ("24-") is left out of the tail. unclear: there are more words after the devices than titles; none is in the
    tail. few: there are fewer words than titles, and it is unknown under which they are; they were taken from the
    left. parted: cells stood together without a blank between them.
    """

    device: str
    line: int
    cells: list[str] = field(default_factory=list)
    tail: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    unclear: bool = False
    few: bool = False
    parted: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """The table: devices in column order, titles of the columns after them, rows in print order, NIC legend.

    columnless are NICs that have a row and no column, and are not read. is_peer: its cells are peer-to-peer
    statuses. p2p_option: the option of `topo -p2p`, if a line before it gives it.
    ignored_from_line: where another matrix begins, which is not read.
    """

    header_line: int
    devices: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[Row, ...]
    device_of_nic: dict[str, str]
    columnless: tuple[str, ...] = ()
    is_peer: bool = False
    p2p_option: str | None = None
    ignored_from_line: int | None = None

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPU columns."""
        return tuple(name for name in self.devices if _GPU.fullmatch(name))

    @property
    def nics(self) -> tuple[str, ...]:
        """Names of the NIC columns."""
        others = (name for name in self.devices if not _GPU.fullmatch(name))
        return tuple(name for name in others if not _DISK.fullmatch(name))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The header; where each title starts, if that is known; whether "NUMA" alone is left of the last title."""

    devices: tuple[str, ...]
    titles: tuple[str, ...]
    title_at: Mapping[int, str]
    short_title: bool


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    words: tuple[str, ...]


def read_grid(text: str, source: str) -> Grid:
    """Find the matrix of links in a text. BadInput, naming the source, where there is none, or more than one."""
    found = _grids(text, source)
    links = [grid for grid in found if not grid.is_peer]
    if len(links) > 1:
        lines = [grid.header_line for grid in links]
        raise BadInput(
            f"{source}: two matrices, from line {lines[0]} and from line {lines[1]}; give one"
        )
    if not links or not any(is_link_word(word) for row in links[0].rows for word in row.cells):
        raise BadInput(f"{source}: no `nvidia-smi topo -m` matrix; {what_instead(text)}")
    peers = [grid.header_line for grid in found if grid.is_peer]
    return replace(links[0], ignored_from_line=peers[0] if peers else None)


def read_peer_grids(text: str, source: str) -> tuple[Grid, ...]:
    """Find the peer-to-peer matrices in a text, one or more. BadInput, naming the source, where there is none.

    The matrix of a lone GPU has one cell, X, and none of the titles that a matrix of links has.
    """
    found = _grids(text, source)
    peers = tuple(grid for grid in found if grid.is_peer)
    alone = [
        grid
        for grid in found
        if len(grid.devices) == 1
        and not grid.titles
        and [row.cells for row in grid.rows] == [["X"]]
    ]
    if peers or len(alone) == 1:
        return peers or tuple(alone)
    wanted = "give the print of `nvidia-smi topo -p2p r`"
    raise BadInput(f"{source}: no `nvidia-smi topo -p2p` matrix; {named_instead(text)}; {wanted}")


def _grids(text: str, source: str) -> list[Grid]:
    """Find all matrices, in the order of the text. BadInput where they are too large or too many."""
    plain = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_CHARS or plain.count("\n") > MAX_LINES:
        raise BadInput(f"{source}: a larger text than {MAX_CHARS >> 20} MiB or {MAX_LINES} lines")
    lines = _lines(plain)
    legend = _legend(lines)
    found: list[Grid] = []
    before: Sequence[_Line] = ()
    while True:
        lines = _unwrapped(lines)
        start = next((i for i in range(len(lines)) if _is_header_at(lines, i)), None)
        if start is None:
            return found
        if len(found) == _MAX_MATRICES:
            raise BadInput(f"{source}: more than {_MAX_MATRICES} matrices; give one")
        grid, end = _grid(lines, start, legend, source)
        found.append(replace(grid, p2p_option=_p2p_option([*before, *lines[:start]])))
        before, lines = lines[start:end], lines[end:]


def _grid(
    lines: Sequence[_Line], start: int, legend: Mapping[str, str], source: str
) -> tuple[Grid, int]:
    """Return the matrix whose header is lines[start], and where the next one begins or the text ends."""
    header, first = _header(lines, start)
    body = lines[first:]
    devices = tuple(takewhile(lambda word: word not in _TITLE_WORDS, header))
    titles = _titles(header[len(devices) :])
    end = next((i for i, line in enumerate(body) if _begins_table(line.words)), len(body))
    is_peer = _is_peer_matrix(body[:end])
    if not titles and not is_peer:
        devices = _with_cut_columns(devices, body[:end], legend)
    if len(devices) > MAX_DEVICES:
        raise BadInput(
            f"{source}:{lines[start].number}: {len(devices)} columns; at most {MAX_DEVICES}"
        )
    columns = _Columns(
        devices, titles, _positions(lines[start].text, titles), header[-1] == _SHORT_TITLE
    )
    rows = tuple(_rows(body[:end], columns))
    named = {} if is_peer else dict(legend)
    others = tuple(name for name in _nics_with_row(body[:end], devices) if name not in devices)
    return Grid(lines[start].number, devices, titles, rows, named, others, is_peer), first + end


def _p2p_option(lines: Sequence[_Line]) -> str | None:
    """Return what the last command in these lines asked `topo -p2p` for."""
    given = (option for line in reversed(lines) for option in _P2P_OPTION.findall(line.text)[-1:])
    return next(given, None)


def _lines(text: str) -> list[_Line]:
    """Split into lines numbered from 1, without ANSI codes, and with blanks in place of marks."""
    cleaned = (_ANSI.sub("", line).replace("\x00", "") for line in text.split("\n"))
    plain = (_MARKS.sub(lambda mark: " " * len(mark[0]), line) for line in cleaned)
    return [_Line(number, line, tuple(line.split())) for number, line in enumerate(plain, start=1)]


def _unwrapped(lines: Sequence[_Line]) -> list[_Line]:
    """Put words together again that a terminal broke at its last column, in the header or after it.

    Pieces that end between words stay lines: `_header` and `_rows` join those. Lines with tabs are as nvidia-smi
    printed them. Where the header is shorter than other lines, blanks at the ends of lines are gone.
    """
    start = next((i for i, line in enumerate(lines) if _begins_header(line)), None)
    if start is None or not _is_wrapped(lines[start : start + 2]):
        return list(lines)
    table = list(takewhile(lambda line: line.words, lines[start:]))
    width = max(len(line.text.rstrip()) for line in table)
    trimmed = len(lines[start].text) < width
    joined = list(lines[: start + 1])
    piece = lines[start].text
    for line in lines[start + 1 :]:
        at_the_edge = len(piece) == width and line.text[:1].strip()
        piece = line.text
        fits = len(joined[-1].text) < _MAX_JOINED_CHARS
        if at_the_edge and fits and _breaks_a_word(joined[-1].words, line.words, trimmed):
            whole = joined[-1].text + line.text
            joined[-1] = _Line(joined[-1].number, whole, tuple(whole.split()))
        else:
            joined.append(line)
    return joined


def _breaks_a_word(words: Sequence[str], more: Sequence[str], trimmed: bool) -> bool:
    """Return whether the first word of a piece belongs to the last one before it: not where both are whole.

    Half a list of CPUs looks whole too. It is known to be half where the blanks that follow a whole one would show.
    """
    if words and not _is_cell(words[-1]) and _is_cell(words[-1] + more[0]):
        return True  # "V6 NV6..." after "...N" would look like a row
    if not words or _looks_like_row(more):
        return False
    return not (_is_whole(words[-1], trimmed) and _is_whole(more[0], trimmed))


def _is_whole(word: str, trimmed: bool) -> bool:
    whole = _is_cell(word) or _is_device(word) or word in _TITLE_WORDS
    return whole or (trimmed and bool(_AFFINITY.fullmatch(word)))


def _begins_header(line: _Line) -> bool:
    """Return whether a line is a header, or the beginning of one whose last word may be broken."""
    return _is_header(line.words) or (line.words[:1] == ("GPU0",) and _is_header(line.words[:-1]))


def _is_header_at(lines: Sequence[_Line], i: int) -> bool:
    """Return whether a line is a header, if need be one whose last word was cut; then a row must follow."""
    if _is_header(lines[i].words):
        return True
    following = lines[i + 1].words if i + 1 < len(lines) else ()
    return _begins_header(lines[i]) and _looks_like_row(following)


def _is_wrapped(lines: Sequence[_Line]) -> bool:
    """Return whether a header goes on in the next line: no blank line follows, nor a row."""
    following = lines[1].words if len(lines) > 1 else ()
    return "\t" not in lines[0].text and bool(following) and not _looks_like_row(following)


def _looks_like_row(words: Sequence[str]) -> bool:
    return len(words) > 1 and _is_device(words[0]) and _is_cell(words[1])


def _with_cut_columns(
    devices: tuple[str, ...], lines: Sequence[_Line], legend: Mapping[str, str]
) -> tuple[str, ...]:
    """Add the NICs whose columns were cut off a header: those that have a row, then those the legend names.

    The last word of such a header may be a fragment of the first one's name.
    """
    with_row = _nics_with_row(lines, devices)
    missing = [name for name in dict.fromkeys((*with_row, *legend)) if name not in devices]
    last = devices[-1]
    if missing and last not in with_row and missing[0].startswith(last):
        devices = devices[:-1]
    return (*devices, *missing)


def _nics_with_row(lines: Sequence[_Line], devices: Sequence[str]) -> list[str]:
    """Return the names that begin a row of as many cells as the header has columns, but for a last one that was cut."""
    return [
        line.words[0]
        for line in lines
        if _looks_like_row(line.words)
        and not _GPU.fullmatch(line.words[0])
        and len(line.words) >= len(devices)
        and all(map(is_link_word, line.words[1:-1]))
    ]


def _positions(header: str, titles: tuple[str, ...]) -> dict[int, str]:
    """Return where each title starts in a header without tabs; nothing for one that was wrapped."""
    found = {header.rfind(title): title for title in titles}
    return {} if "\t" in header or -1 in found else found


def _is_header(words: Sequence[str]) -> bool:
    """Return whether words are column names: GPUs first, then NICs, then titles, and nothing else."""
    devices = list(takewhile(lambda word: word not in _TITLE_WORDS, words))
    if not devices or not _GPU.fullmatch(devices[0]):
        return False
    if len(words) == 1 and devices[0] != "GPU0":
        return False
    named = all(_is_device(word) for word in devices)
    return named and all(word in _TITLE_WORDS for word in words[len(devices) :])


def _begins_table(words: Sequence[str]) -> bool:
    """Return whether words are the header of another table, of GPUs or of disks alone."""
    return _is_header(words) or (bool(words) and all(map(_DISK.fullmatch, words)))


def _is_device(word: str) -> bool:
    return not _is_cell(word) and bool(_GPU.fullmatch(word) or _NIC.fullmatch(word))


def _header(lines: Sequence[_Line], start: int) -> tuple[list[str], int]:
    """Return the words of the header with its wrapped lines, and where the lines after it begin."""
    first = lines[start].words
    words = list(first if _is_header(first) else first[:-1])
    for i in range(start + 1, len(lines)):
        more = lines[i].words
        known = all(_is_device(word) or word in _TITLE_WORDS for word in more)
        if not more or not known or len(words) > MAX_DEVICES or _repeats(more, words):
            return words, i
        words += more
    return words, len(lines)


def _repeats(more: Sequence[str], words: Sequence[str]) -> bool:
    return not set(words).isdisjoint(set(more) - _TITLE_WORDS)


def _titles(words: Sequence[str]) -> tuple[str, ...]:
    """Return the titles that words spell; what is under one that was cut was cut too."""
    left = " ".join(words)
    found = []
    for title in TITLES:
        if left.startswith(title):
            found.append(title)
            left = left[len(title) :].lstrip()
    return (*found, TITLES[1]) if left == _SHORT_TITLE else tuple(found)


def _rows(lines: Sequence[_Line], columns: _Columns) -> Iterator[Row]:
    """Yield the rows, joining those that a terminal wrapped."""
    pending: tuple[int, list[str], str] | None = None
    devices = frozenset(columns.devices)
    for line in lines:
        words = line.words
        starts = _starts_row(words, devices)
        if pending and not starts and words and _continues(pending[1], words, len(columns.devices)):
            pending[1].extend(words)
            continue
        if pending:
            yield _row(*pending, columns)
        pending = (line.number, list(words), line.text) if starts else None
    if pending:
        yield _row(*pending, columns)


def _starts_row(words: Sequence[str], devices: frozenset[str]) -> bool:
    """Return whether a line is a row and not a sentence about a GPU: cells have no small letters."""
    if not words or not (words[0] in devices or _GPU.fullmatch(words[0])):
        return False
    return len(words) == 1 or words[1] == words[1].upper()


def is_link_word(word: str) -> bool:
    """Return whether a word may be in a device column of a matrix of links."""
    return bool(_LINK.fullmatch(word))


def _is_cell(word: str) -> bool:
    """Return whether a word may be in a device column of some matrix."""
    return is_link_word(word) or is_peer_status(word)


def _continues(row: Sequence[str], more: Sequence[str], columns: int) -> bool:
    """Return whether a line goes on where a wrapped row stopped: cells, then affinities, nothing else."""
    cells = list(takewhile(_is_cell, more))
    fits = not cells or len(row) - 1 + len(cells) <= columns
    return fits and all(_AFFINITY.fullmatch(word) for word in more[len(cells) :])


def _row(line: int, printed: list[str], text: str, columns: _Columns) -> Row:
    count = len(columns.devices)
    words = [printed[0], *(part for word in printed[1:] for part in _parts(word))]
    parted = len(words) > len(printed)
    cells = list(takewhile(lambda word: word not in _ELLIPSIS, words[1 : 1 + count]))
    short = next((i for i, word in enumerate(cells) if _AFFINITY.fullmatch(word)), None)
    if (
        short is not None
    ):  # fewer cells than columns, yet the row goes on: the meaning module refuses it
        return Row(words[0], line, cells[: short + 1])
    tail = _joined_lists(words[1 + count :])
    unclear = len(tail) > len(columns.titles) > 0
    titles = () if unclear else _titles_over(text, tail, columns)
    given = {title: word for title, word in zip(titles, tail, strict=False) if word[-1] not in "-,"}
    if columns.short_title and len(given.get(titles[-1], "") if titles else "") >= len(
        _SHORT_TITLE
    ):
        del given[titles[-1]]  # where the header was cut in its last title, so was what fills it
    few = len(tail) < len(columns.titles) == len(titles)
    fragment = not columns.titles and bool(cells) and not _is_cell(cells[-1])
    return Row(words[0], line, cells, given, len(cells) < count or fragment, unclear, few, parted)


def _parts(word: str) -> list[str]:
    """Return the link classes of a word that is several without blanks, else the word."""
    return _LINK.findall(word) if _LINKS_WITHOUT_BLANKS.fullmatch(word) else [word]


def _titles_over(text: str, tail: Sequence[str], columns: _Columns) -> Sequence[str]:
    """Return the titles over the words after the devices, of which the first may have none under it."""
    if _first_tail_cell_is_blank(text, len(columns.devices)):
        return columns.titles[1:]
    starts = [word.start() for word in re.finditer(r"\S+", text)][len(columns.devices) :]
    if not tail or len(starts) != 1 + len(tail):
        return columns.titles
    last_cell, *starts = starts
    titles = [columns.title_at[start] for start in starts if start in columns.title_at]
    if len(titles) == len(tail):
        return titles
    after_a_blank = starts[0] - last_cell >= _BLANK_CELL_GAP and len(tail) < len(columns.titles)
    return columns.titles[1:] if after_a_blank else columns.titles


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
    """Return whether a row with tabs has nothing under the first title but something further right."""
    tail = text.split("\t")[1 + columns :]
    return bool(tail) and not tail[0].strip() and any(cell.strip() for cell in tail)


def _is_peer_matrix(lines: Sequence[_Line]) -> bool:
    """Return whether rows hold peer-to-peer statuses, and no fewer than link classes."""
    rows = (line.words[1:] for line in lines if _looks_like_row(line.words))
    cells = [word for words in rows for word in words if word != "X"]
    statuses = sum(map(is_peer_status, cells))
    return statuses > 0 and statuses >= sum(map(is_link_word, cells))


def _legend(lines: Sequence[_Line]) -> dict[str, str]:
    """Return what the NIC legend states: column name -> device."""
    entries = (_LEGEND_ENTRY.fullmatch(line.text) for line in lines)
    return {entry[1]: entry[2] for entry in entries if entry}
