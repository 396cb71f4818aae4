"""Files made to harm: they are refused in few words, and cost no more memory than a good file of their length.

All are read in one child with an address space of its own limit, so that what grows without bound fails there.
"""

import gzip
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from gantree.formats import read_job, read_trace
from gantree.formats.access.reader import read_access
from gantree.formats.cluster.reader import read_cluster
from gantree.formats.job.reader import read_submission_objects
from gantree.formats.validation.problem_limit import MAX_MISTAKES
from gantree.model.errors import BadFields
from gantree.text.document import MAX_PATH_CHARS, read_documents
from gantree.text.json_text import read_json

MORE_BYTES = 256 << 20
CHILD_CPU_S = 60
JOB = "name: a\ngang: [{role: w, members: 1, run: [a]}]\n"
HEADER = "job_id,submit_s,duration_s,members,gpus_per_member\n"
LAUGHS = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(30))
HOSTILE: dict[str, Callable[[], object]] = {
    "a field name of 300 KB over 200,000 lists": lambda: read_job(
        f'? "{"a" * 300_000}"\n: [{"[]," * 200_000}]\n', "f"
    ),
    "an object's field name of 500 KB over 300,000 numbers": lambda: read_submission_objects(
        [{"k" * 500_000: [1] * 300_000}], "f"
    ),
    "JSON with a field name of 500 KB over 100,000 lists": lambda: read_json(
        f'{{"{"k" * 500_000}": [{"[]," * 100_000}[]], "a": 1, "a": 2}}', "f"
    ),
    "400,000 roles that are none": lambda: read_submission_objects([{"gang": [1] * 400_000}], "f"),
    "300,000 unknown fields": lambda: read_submission_objects([dict.fromkeys(map(str, range(300_000)))], "f"),
    "100,000 names that are none": lambda: read_job(f"{JOB}after: [{'., ' * 100_000}]\n", "f"),
    "50,000 documents that are no jobs": lambda: read_job("---\na: 1\n" * 50_000, "f"),
    "a field 100,000 times": lambda: read_job("a: 1\n" * 100_000, "f"),
    "aliases of aliases": lambda: read_cluster(LAUGHS, "f"),
    "100,000 levels": lambda: read_access("[" * 100_000, "f"),
}  # fmt: skip


def costs_little(read: Callable[[], object]) -> str:
    """What a reader says, in a child that may take MORE_BYTES more than this process has."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        told = "nothing was said"
        try:
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + MORE_BYTES, mapped + MORE_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (CHILD_CPU_S, CHILD_CPU_S))
            read()
        except BadFields as error:
            told = f"BadFields {error}"
        except BaseException as error:
            told = repr(error)
        finally:
            os.write(into, told[:60_000].encode())
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as said:
        told = said.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_at_little_cost(what: str) -> None:
    told = costs_little(HOSTILE[what])
    assert told.startswith("BadFields"), told[:300]
    assert "f" in told
    assert len(told) < 50_000


@pytest.mark.parametrize(
    "start", [b"\0", b"\n", HEADER.encode() + b"a,", HEADER.encode() + b"\n" * 200_000]
)
def test_an_archive_of_one_letter_is_refused_at_little_cost(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(start, 1) + gzip.compress(start[-1:] * (16 << 20), 1) * 20)
    assert costs_little(lambda: read_trace(path)).startswith("BadFields")


def test_a_device_that_never_ends_is_no_trace() -> None:
    assert "a longer line" in costs_little(lambda: read_trace(Path("/dev/zero")))


def test_paths_do_not_grow_with_field_names() -> None:
    key = "k" * 1000
    (document,) = read_documents(f"{{{key}: {{{key}: [[[]]]}}}}", "f", [])
    inner = document.value[key][key][0][0]
    assert len(inner.path) <= MAX_PATH_CHARS


def test_of_a_flood_the_first_mistakes_are_told_with_their_lines() -> None:
    rows = "".join(f"- {{role: w{i}, members: 0, run: [a]}}\n" for i in range(MAX_MISTAKES + 1))
    with pytest.raises(BadFields) as error:
        read_job(f"name: a\ngang:\n{rows}", "f")
    first = error.value.problems[0]
    assert (first.line, first.field) == (3, "gang[0].members")
    assert len(error.value.problems) <= 100


def test_a_flood_behind_good_entries_is_refused_too() -> None:
    good = "- {role: w, members: 1, run: [a]}\n" * 200
    with pytest.raises(BadFields, match=f"more than {MAX_MISTAKES} mistakes"):
        read_job(f"name: a\ngang:\n{good}" + "- 1\n" * (MAX_MISTAKES + 1), "f")
