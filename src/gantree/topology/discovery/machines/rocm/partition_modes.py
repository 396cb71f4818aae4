"""How the GPUs of a machine are divided, from what AMD's tools print of their compute partitions.

Read are `amd-smi static --partition`, `amd-smi partition` (its table CURRENT_PARTITION) and `amd-smi list`, with or
without -e, as text or --json, and `rocm-smi --showcomputepartition --showmemorypartition`. Several prints of one
machine may be joined: a list has the UUIDs, the others the modes, and rocm-smi does not number partitions.

amd-smi numbers partitions ("GPU: 9"), not GPUs: the first partition of a GPU has PARTITION_ID 0, the others follow it.
Since ROCm 6.4.1 only the first one tells the mode, and of the others N/A is printed; until then every one did, in the
table with all ids in the row of the first one ("0,1,2,3"). rocm-smi prints the mode of the first ones alone.

Of JSON the forms are known from the source of amd-smi and from programs that read it: a list of objects, or one in
"gpu_data" or "current_partition"; the fields of `static` stand in an object "partition".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gantree.model.errors import BadInput
from gantree.text.records import Record, Report, json_records
from gantree.text.words import shortened

MAX_CHARS = 8 << 20
MAX_PARTITIONS = 1024
WHOLE = "spx"
COUNTS = {WHOLE: 1, "dpx": 2, "tpx": 3, "qpx": 4}
"""Partitions of a GPU by its mode; in CPX as many as it has XCDs."""
MODES = (*COUNTS, "cpx")
_WANTED = "give `amd-smi static --partition`, `amd-smi partition`, `amd-smi list` or `rocm-smi --showcomputepartition`"
_MEMORY = re.compile(r"NPS[1248]", re.IGNORECASE)
_BLOCK = re.compile(r"GPU: ([0-9]{1,5})\s*")
_FIELD = re.compile(r"\s+([A-Z_]{2,40}): (\S.{0,200}?)\s*")
_TABLE = re.compile(
    r"\s*GPU_ID\s+MEMORY\s+ACCELERATOR_TYPE\s+ACCELERATOR_PROFILE_INDEX\s+PARTITION_ID\s*"
)
_ROW = re.compile(r"\s*([0-9]{1,5})\s+(\S+)\s+(\S+)\s+\S+\s+([0-9,]+|N/A)\s*")
_ROCM = re.compile(r"GPU\[([0-9]{1,5})\]\s*: (Compute|Memory) Partition: (\S+)\s*", re.IGNORECASE)
_NONE = frozenset({"", "N/A", "NONE", "NULL", "UNKNOWN"})
_NAMES = {
    "compute_partition": "mode",
    "accelerator_type": "mode",
    "memory_partition": "memory",
    "memory": "memory",
    "partition_id": "ids",
    "uuid": "uuid",
    "hip_uuid": "hip_uuid",
}
"""Fields of amd-smi that are read, in lower case."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A GPU as amd-smi numbers them: a partition, or a whole GPU. None: not printed.

    partition is its number on its GPU, mode "spx" to "cpx", memory "nps1" to "nps8"; uuid as the runtime knows it.
    """

    number: int
    partition: int | None = None
    mode: str | None = None
    memory: str | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class DividedGpu:
    """A GPU and how it is divided: its partitions in their order, one where it is whole."""

    mode: str
    memory: str | None
    partitions: tuple[Partition, ...]

    @property
    def number(self) -> int:
        """The number by which amd-smi is told to change the GPU."""
        return self.partitions[0].number


def parse(text: str, source: str) -> tuple[Partition, ...]:
    """Read a print; by number. source names it in errors.

    BadInput: it is no such print, or names no GPU. BadFields, with fields: JSON whose values are of another form.
    """
    if len(text) > MAX_CHARS:
        raise BadInput(f"{source}: a larger text than {MAX_CHARS >> 20} MiB")
    is_json = text.lstrip().startswith(("[", "{"))
    rows = list(_json_rows(text, source) if is_json else _text_rows(text))
    found: dict[int, Partition] = {}
    for number, fields in rows:
        if number >= MAX_PARTITIONS:
            raise BadInput(f"{source}: GPU {number}; allowed: numbers below {MAX_PARTITIONS}")
        for each in _read(number, fields, f"{source}: GPU {number}"):
            found[each.number] = _joined(found.get(each.number), each, source)
    if not found:
        raise BadInput(f"{source}: no GPU in what should be a print of partitions; {_WANTED}")
    return tuple(found[number] for number in sorted(found))


def divided(partitions: Iterable[Partition], source: str) -> tuple[DividedGpu, ...]:
    """Group partitions by GPU, in the order of amd-smi; those of several prints of one machine are joined.

    BadInput: a GPU without its first partition or without a mode, or with more or fewer partitions than its mode makes.
    """
    known: dict[int, Partition] = {}
    for each in partitions:
        known[each.number] = _joined(known.get(each.number), each, source)
    groups: list[list[Partition]] = []
    for number in sorted(known):
        each = known[number]
        if each.partition is None:
            raise BadInput(f"{source}: GPU {number}: no PARTITION_ID; {_WANTED}")
        if each.partition == 0:
            groups.append([])
        if not groups or each.partition != len(groups[-1]):
            place = f"partition {each.partition} of a GPU"
            raise BadInput(
                f"{source}: GPU {number} is {place} whose earlier partitions are not printed before it"
            )
        groups[-1].append(each)
    return tuple(_gpu(group, source) for group in groups)


def _gpu(group: Sequence[Partition], source: str) -> DividedGpu:
    where = f"{source}: GPU {group[0].number}"
    modes = sorted({each.mode for each in group if each.mode is not None})
    if len(modes) != 1:
        raise BadInput(
            f"{where}: {' and '.join(modes) or 'no mode'}; allowed: one mode of all its partitions"
        )
    expected = COUNTS.get(modes[0])
    if len(group) != (expected or len(group)) or (expected is None and len(group) < 2):
        raise BadInput(
            f"{where}: {len(group)} partitions in mode {modes[0]}, which makes {expected or 'more'}"
        )
    return DividedGpu(modes[0], next((e.memory for e in group if e.memory), None), tuple(group))


def _joined(one: Partition | None, other: Partition, source: str) -> Partition:
    """What two prints say of one partition. BadInput where they differ."""
    if one is None:
        return other
    for field in ("partition", "mode", "memory", "uuid"):
        values = getattr(one, field), getattr(other, field)
        if None not in values and values[0] != values[1]:
            raise BadInput(f"{source}: GPU {one.number}: {field} {values[0]}, and then {values[1]}")
    return replace(
        one,
        partition=other.partition if one.partition is None else one.partition,
        mode=one.mode or other.mode,
        memory=one.memory or other.memory,
        uuid=one.uuid or other.uuid,
    )


def _read(number: int, fields: dict[str, str], where: str) -> Iterator[Partition]:
    """A row; all partitions of a GPU where it names them all."""
    told = {name: value for name, value in fields.items() if value.upper() not in _NONE}
    mode, memory = told.get("mode"), told.get("memory")
    if mode is not None and mode.lower() not in MODES:
        raise BadInput(f"{where}: mode `{shortened(mode)}`; allowed: {', '.join(MODES)}")
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise BadInput(
            f"{where}: memory mode `{shortened(memory)}`; allowed: NPS1, NPS2, NPS4, NPS8"
        )
    ids = told.get("ids", "").split(",") if "ids" in told else []
    if not all(each.isascii() and each.isdecimal() and len(each) < 4 for each in ids):
        raise BadInput(
            f"{where}: partition `{shortened(told['ids'])}`; allowed: a number, or several with commas"
        )
    uuid = told.get("hip_uuid", told.get("uuid"))
    first = Partition(
        number, int(ids[0]) if ids else None, mode and mode.lower(), memory and memory.lower(), uuid
    )
    yield first
    for each in ids[1:]:
        yield replace(first, number=number + int(each), partition=int(each), uuid=None)


def _text_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of tables, and blocks of fields below a line "GPU: 0"."""
    block: tuple[int, dict[str, str]] | None = None
    in_table = False
    for line in text.splitlines():
        head = line[:400]
        if found := _ROCM.fullmatch(head):
            field = "mode" if found[2].lower() == "compute" else "memory"
            yield int(found[1]), {field: found[3]}
        elif found := _BLOCK.fullmatch(head):
            if block is not None and block[1]:
                yield block
            block, in_table = (int(found[1]), {}), False
        elif block is not None and (found := _FIELD.fullmatch(head)):
            name = _NAMES.get(found[1].lower())
            if name is not None:
                block[1][name] = found[2]
        elif _TABLE.fullmatch(head):
            in_table = True
        elif in_table and (found := _ROW.fullmatch(head)):
            yield int(found[1]), {"memory": found[2], "mode": found[3], "ids": found[4]}
        elif not head.strip():
            in_table = False
    if block is not None and block[1]:
        yield block


def _json_rows(text: str, source: str) -> Iterator[tuple[int, dict[str, str]]]:
    report = Report(source)
    for record in json_records(text, report):
        wrappers = [name for name in ("gpu_data", "current_partition") if record.has(name)]
        rows = [row for name in wrappers for row in record.records(name)] or [record]
        for row in rows:
            yield from _json_row(row)
    report.check()


def _json_row(row: Record) -> Iterator[tuple[int, dict[str, str]]]:
    number = next((name for name in ("gpu", "gpu_id") if row.has(name)), None)
    if number is None:
        return
    inner = row.record("partition") if row.has("partition") else None
    fields: dict[str, str] = {}
    for record in (row, inner) if inner is not None else (row,):
        for key in record.keys():  # noqa: SIM118 - a record is no mapping
            name, value = _NAMES.get(key.lower()), record.table.get(key)
            if name is not None and isinstance(value, str | int):
                fields[name] = str(value)
    if fields:
        yield row.integer(number), fields
