"""`nvidia-smi nvlink -s`: active NVLinks of each GPU and their speed, not their far ends.

A GPU with 12 of 18 links up has NV12 to the others of its NVSwitches, or shares them out among the GPUs that it is
wired to. A board whose sockets are not all bridged has links that never come up, so inactive links are an error only
where another GPU of the same model has more (or where the link matrix has more, see `same_machine`).

The rate printed is that of the wires. NVLink 4 and later spend a part of it on error correction (26.5625 GB/s carry
25, 53.125 carry 50: a factor of 0.9412), NVLink 2 on V100 on line codes (25.78125 carry 25); others print what they
carry (A100 25, A6000 14.0625).

Where a GPU has no link up, or no NVLink at all, drivers print that in words, below its line or at the end of it.
Counters of `nvidia-smi nvlink -e` may be in the same text: those that are not 0 are warned of.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gantree.model.errors import BadInput, Problem
from gantree.text.words import counted, shortened
from gantree.topology.discovery.machines.input_errors.refusal import refuse
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead

MAX_CHARS = 8 << 20
_GPU = re.compile(r"\s*GPU ([0-9]{1,4}):\s*(.*?)(?:\s*\(UUID:\s*([^)\s]{1,90})\)(.*))?\s*")
_LINK = re.compile(
    r"\s*Link ([0-9]{1,3}):\s*(?:<?(inactive)>?|([0-9]{1,5}(?:\.[0-9]{1,6})?) GB/s)\s*", re.I
)
_COUNTER = re.compile(
    r"\s*Link ([0-9]{1,3}):\s*([A-Za-z][A-Za-z ]{0,60}?)(?: Errors?)?:\s*([0-9]{1,18})\s*"
)
_NONE_UP = re.compile(
    r"all links are inactive|does not (?:have or )?support nvlink|^\s*\(?not supported\)?\s*$",
    re.IGNORECASE,
)
_WANTED = "give the print of `nvidia-smi nvlink -s`"
_GBPS_STEP = 25.0
_WIRE_PER_CARRIED = (1.0625, 66 / 64)
"""Wire rate over carried rate: NVLink 4 and later (17 symbols for 16), NVLink 2 on V100 (66 bits for 64)."""


@dataclass(frozen=True, slots=True)
class NvlinkStatus:
    """NVLinks of the GPUs that a print names. All tuples are parallel to `gpus`, the numbers of nvidia-smi.

    links_of_gpu counts all links that were printed, active_of_gpu those that are up; None where the print was cut.
    GBps_of_link is what one active link of the GPU carries in one direction; None without an active one.
    """

    gpus: tuple[int, ...]
    links_of_gpu: tuple[int | None, ...]
    active_of_gpu: tuple[int | None, ...]
    GBps_of_link: tuple[float | None, ...]
    uuid_of_gpu: tuple[str | None, ...]
    product_of_gpu: tuple[str, ...]
    inferred: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seen:
    """What was read of one GPU: its links by number, wire rate in GB/s or None where inactive, with lines."""

    line: int
    product: str
    uuid: str | None
    none_up: bool = False
    counters: int = 0
    links: dict[int, tuple[float | None, int]] = field(default_factory=dict)
    errors: Counter[int] = field(default_factory=Counter)


def parse(text: str, source: str) -> NvlinkStatus:
    """Read a print. `source` names the file in errors.

    BadInput: the text holds no such print. BadFields, with lines: a GPU or link that is given twice and differently.
    Error counters alone give a status whose counts are None.
    """
    if len(text) > MAX_CHARS:
        raise BadInput(f"{source}: a larger text than {MAX_CHARS >> 20} MiB")
    problems: list[Problem] = []
    seen = _seen(text, source, problems)
    refuse(problems)
    if not any(gpu.links or gpu.none_up or gpu.counters for gpu in seen.values()):
        what = "GPUs, but no link of theirs" if seen else named_instead(text)
        raise BadInput(f"{source}: no `nvidia-smi nvlink -s` print; {what}; {_WANTED}")
    gpus = dict(sorted(seen.items()))
    most = _most_links(gpus.values())
    whole = {number: _is_whole(gpu, most[gpu.product]) for number, gpu in gpus.items()}
    return NvlinkStatus(
        gpus=tuple(gpus),
        links_of_gpu=tuple(
            len(gpu.links) if whole[n] and gpu.links else None for n, gpu in gpus.items()
        ),
        active_of_gpu=tuple(_active(gpu) if whole[n] else None for n, gpu in gpus.items()),
        GBps_of_link=tuple(_GBps(gpu) for gpu in gpus.values()),
        uuid_of_gpu=tuple(gpu.uuid for gpu in gpus.values()),
        product_of_gpu=tuple(gpu.product for gpu in gpus.values()),
        inferred=tuple(_inferred(gpus, whole)),
        warnings=tuple(_warnings(gpus, whole)),
    )


def carried_GBps(wire_GBps: float) -> float:
    """Return what a link carries in one direction, given the rate of its wires as printed (26.562 -> 25)."""
    for factor in _WIRE_PER_CARRIED:
        steps = round(wire_GBps / factor / _GBPS_STEP)
        if steps and abs(wire_GBps / factor - steps * _GBPS_STEP) < 0.002 * _GBPS_STEP:
            return steps * _GBPS_STEP
    return wire_GBps


def _seen(text: str, source: str, problems: list[Problem]) -> dict[int, _Seen]:
    seen: dict[int, _Seen] = {}
    current: _Seen | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        gpu = _GPU.fullmatch(line[:400])
        if gpu:
            current = _gpu(gpu, number, seen, source, problems)
        elif current is not None:
            _take_line(current, line[:400], number, source, problems)
    return seen


def _gpu(
    match: re.Match[str],
    line: int,
    seen: dict[int, _Seen],
    source: str,
    problems: list[Problem],
) -> _Seen:
    """Return the GPU that a line names; a print of status and one of errors name it twice."""
    found = _Seen(line, shortened(match[2]), match[3])
    known = seen.setdefault(int(match[1]), found)
    known.none_up |= bool(_NONE_UP.search(match[4] or ""))
    if known.uuid and found.uuid and known.uuid != found.uuid:
        allowed = f"{known.uuid}, as in line {known.line}"
        problems.append(Problem(source, line, f"GPU {match[1]}, UUID", found.uuid, allowed))
    return known


def _take_line(gpu: _Seen, line: str, number: int, source: str, problems: list[Problem]) -> None:
    link, counter = _LINK.fullmatch(line), _COUNTER.fullmatch(line)
    if link:
        rate = None if link[2] else float(link[3])
        first, there = gpu.links.setdefault(int(link[1]), (rate, number))
        if first != rate:
            allowed = f"{_shown(first)}, as in line {there}"
            problems.append(Problem(source, number, f"Link {link[1]}", _shown(rate), allowed))
    elif counter:
        gpu.counters += 1
        gpu.errors[int(counter[1])] += int(counter[3])
    elif _NONE_UP.search(line):
        gpu.none_up = True


def _shown(rate: float | None) -> str:
    return "inactive" if rate is None else f"{rate:g} GB/s"


def _most_links(gpus: Iterable[_Seen]) -> dict[str, int]:
    """Return how many links the GPUs of each product have: one more than the highest number printed."""
    most: dict[str, int] = {}
    for gpu in gpus:
        most[gpu.product] = max(most.get(gpu.product, 0), 1 + max(gpu.links, default=-1))
    return most


def _is_whole(gpu: _Seen, most_links: int) -> bool:
    """Return whether no link is left out: of those printed none is missing, nor any that GPUs of this model have."""
    return gpu.none_up or (bool(gpu.links) and set(gpu.links) == set(range(most_links)))


def _active(gpu: _Seen) -> int:
    return sum(rate is not None for rate, _ in gpu.links.values())


def _GBps(gpu: _Seen) -> float | None:
    """Return the rate of the slowest active link."""
    return min((carried_GBps(rate) for rate, _ in gpu.links.values() if rate), default=None)


def _inferred(gpus: Mapping[int, _Seen], whole: Mapping[int, bool]) -> Iterator[str]:
    wires = sorted({rate for gpu in gpus.values() for rate, _ in gpu.links.values() if rate})
    for wire in wires:
        if carried_GBps(wire) != wire:
            yield f"a link of {wire:g} GB/s carries {carried_GBps(wire):g}; the rest is error correction or line code"
    for number, gpu in gpus.items():
        if whole[number] and 0 < _active(gpu) < len(gpu.links):
            up = f"{_active(gpu)} of {len(gpu.links)} links are active"
            yield f"GPU{number}: {up}, which is NV{_active(gpu)} where all lead to NVSwitches or to one GPU"


def _warnings(gpus: Mapping[int, _Seen], whole: Mapping[int, bool]) -> Iterator[str]:
    for number, gpu in gpus.items():
        if not whole[number] and gpu.links:
            given = counted(len(gpu.links), "link is", "links are")
            yield f"GPU{number}: {given} given, others are missing; they are not counted"
        elif not whole[number]:
            only = "only error counters are given" if gpu.counters else "no link is given"
            yield f"GPU{number}: {only}, so its active links are not known"
        rates = {rate for rate, _ in gpu.links.values() if rate is not None}
        if len(rates) > 1:
            yield f"GPU{number}: its links run at {' and '.join(map(_shown, sorted(rates)))}"
        wrong = [f"link {link}: {count}" for link, count in sorted(gpu.errors.items()) if count]
        if wrong:
            yield f"GPU{number}: errors on its links ({', '.join(wrong)})"
    yield from _fewer_than_others(gpus, whole)


def _fewer_than_others(gpus: Mapping[int, _Seen], whole: Mapping[int, bool]) -> Iterator[str]:
    """Warn of GPUs with fewer active links than the best of the same model."""
    best: dict[str, int] = {}
    for gpu in gpus.values():
        best[gpu.product] = max(best.get(gpu.product, 0), _active(gpu))
    for number, gpu in gpus.items():
        if whole[number] and _active(gpu) < best[gpu.product]:
            found, most = _active(gpu), best[gpu.product]
            yield f"GPU{number}: {counted(found, 'link is', 'links are')} active, others of its model have {most}"
