"""Encodes snapshots of the ledger as text with a version, and decodes them; unknown fields are errors, as in `codec`.

The text is a JSON object: the version, and sections, each JSON of its own, packed by zlib: the books (by a pydantic
adapter, as facts are), the jobs that live and those that have ended, a thousand a section, as columns (`columns`). What
has ended never changes, so a full section of it is packed once and copied into every later snapshot.

Packing is slow beside a decision, so it can be done by a thread of its own: what it reads never changes.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from gantree.core.snapshot.ledger_snapshot import (
    JOB_FIELDS,
    STORED_JOB,
    Books,
    JobColumns,
    LedgerSnapshot,
    QueueEntrySnapshot,
)
from gantree.journal.encoding.codec import as_dict, why_damaged
from gantree.journal.encoding.columns import Packed, pack, pack_columns, unpack, unpack_columns
from gantree.model.errors import BadInput, JournalError

JOBS_OF_A_SECTION = 1000


def _without_cut_short(sections: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had, of each job, the attempts that preemption cut short."""
    told = dict(sections)
    if "live" in told:
        told["live"] = _without_columns(told["live"], "cut_short")
    if "ended" in told:
        told["ended"] = [_without_columns(each, "cut_short") for each in told["ended"]]
    return told


def _without_columns(section: bytes, prefix: str) -> bytes:
    packed = from_json(section)
    columns = {
        name: each for name, each in packed["columns"].items() if not name.startswith(prefix)
    }
    return to_json({**packed, "columns": columns}, inf_nan_mode="constants")


def _without_usage(sections: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had an account of use by day, queue, user and GPU model: it is in the roll-ups."""
    books = {name: each for name, each in from_json(sections["books"]).items() if name != "usage"}
    return {**sections, "books": to_json(books, inf_nan_mode="constants")}


UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _without_cut_short,
    2: _without_usage,
}
"""Old version -> sections of that version, as JSON, made into sections of the next."""
QUICK = 1
"""Level of zlib: half as small again at the best costs eight times as long."""

_BOOKS = TypeAdapter(Books)


@dataclass(slots=True)
class SnapshotCodec:
    """Encodes the snapshots of one ledger, one after the other. sections: full ones of jobs that have ended, packed.

    forgotten is how many jobs the ledger had forgotten by then.
    """

    sections: list[str] = field(default_factory=list)
    forgotten: int = 0

    def begin(self, forgotten: int) -> int:
        """A snapshot is to be taken of a ledger that has forgotten so many jobs; how many need not be told again."""
        if forgotten != self.forgotten:
            self.sections, self.forgotten = [], forgotten
        return self.ended_known

    @property
    def ended_known(self) -> int:
        """How many ended jobs need not be told again."""
        return JOBS_OF_A_SECTION * len(self.sections)

    def encode(self, snapshot: LedgerSnapshot) -> str:
        """The text of a snapshot that leaves out just the ended jobs that are known. Raises BadInput for no Unicode."""
        assert snapshot.ended_before == self.ended_known, "jobs are missing"
        count = len(snapshot.ended["job"])
        tail: list[str] = []
        for first in range(0, count, JOBS_OF_A_SECTION):
            whole = first + JOBS_OF_A_SECTION <= count
            (self.sections if whole else tail).append(_packed(_part(snapshot.ended, first)))
        plain = {
            "version": LedgerSnapshot.VERSION,
            "books": _packed(snapshot.books),
            "live": _packed(_as_columns(snapshot.live)),
            "lines": _packed(pack(QueueEntrySnapshot, snapshot.lines)),
            "ended": [*self.sections, *tail],
        }
        return json.dumps(plain)

    def decode(self, text: str) -> LedgerSnapshot:
        """The snapshot; later ones of the same ledger go on from what has ended in it.

        Raises JournalError for damaged text, and for a snapshot of a newer program.
        """
        try:
            plain = json.loads(text)
            today = plain["version"] == LedgerSnapshot.VERSION
            sections = _unpacked(plain)
            ended = [_jobs(from_json(each)) for each in sections["ended"]]
            snapshot = LedgerSnapshot(
                _BOOKS.validate_json(sections["books"]),
                _jobs(from_json(sections["live"])),
                tuple(unpack(QueueEntrySnapshot, from_json(sections["lines"]))),
                {
                    name: list(chain.from_iterable(each[name] for each in ended))
                    for name in JOB_FIELDS
                },
            )
        except (ValidationError, ValueError, LookupError, TypeError, zlib.error) as error:
            raise JournalError(
                f"a snapshot in the journal is damaged: {why_damaged(error)}"
            ) from error
        whole = len(snapshot.ended["job"]) // JOBS_OF_A_SECTION
        self.sections = plain["ended"][:whole] if today else []
        self.forgotten = snapshot.books.counters.get("forgotten", 0)
        return snapshot


def books_of(text: str) -> Books:
    """What a snapshot says beside its jobs. Raises JournalError as `SnapshotCodec.decode`."""
    try:
        plain = json.loads(text)
        told = {name: plain[name] for name in ("version", "books")}
        return _BOOKS.validate_json(_unpacked(told)["books"])
    except (ValidationError, ValueError, LookupError, TypeError, zlib.error) as error:
        raise JournalError(f"a snapshot in the journal is damaged: {why_damaged(error)}") from error


def _part(columns: JobColumns, first: int) -> Packed:
    end = first + JOBS_OF_A_SECTION
    return _as_columns({name: column[first:end] for name, column in columns.items()})


def _as_columns(columns: JobColumns) -> Packed:
    return pack_columns(STORED_JOB, columns, len(columns["job"]))


def _jobs(packed: Packed) -> JobColumns:
    return unpack_columns(STORED_JOB, packed, JOB_FIELDS)


def _packed(value: Any) -> str:
    try:
        plain = to_json(value, inf_nan_mode="constants", fallback=as_dict)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise BadInput(f"a snapshot cannot be written down: {error}") from error
    return b64encode(zlib.compress(plain, QUICK)).decode()


def _unpacked(plain: dict[str, Any]) -> dict[str, Any]:
    """The sections as JSON, as today's version has them."""
    version = plain["version"]
    if type(version) is not int or version > LedgerSnapshot.VERSION:
        raise JournalError(
            f"a snapshot of version {version} was written by a newer gantree; upgrade this one"
        )
    sections = {
        name: [_bytes_of(each) for each in text] if isinstance(text, list) else _bytes_of(text)
        for name, text in plain.items()
        if name != "version"
    }
    for old in range(version, LedgerSnapshot.VERSION):
        sections = UPCASTERS[old](sections)
    return sections


def _bytes_of(section: str) -> bytes:
    return zlib.decompress(b64decode(section, validate=True))
