"""Traces for properties: jobs with all columns, in all combinations that are allowed."""

from typing import Any

from hypothesis import strategies as st

from gantree.formats.traces import TraceJob

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
SECONDS = st.floats(0, 1e12)
ABOVE_ZERO = st.floats(0, 1e12, exclude_min=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
COUNTS = st.integers(1, 10**9 - 1)
AXES = st.permutations(["tensor", "context", "data", "pipeline"])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def trace_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """All columns but job_id."""
    members = draw(st.integers(1, 1000))
    part = draw(st.sampled_from(["gpus", "mig", "gpu_share"]))
    elastic = draw(st.booleans())
    sliced = draw(st.booleans())
    spread = draw(maybe(NAMES))
    return {
        "submit_s": draw(SECONDS),
        "duration_s": draw(SECONDS),
        "members": members,
        "gpus_per_member": draw(st.integers(0, 16)) if part == "gpus" else 0,
        "mig": "3g.40gb" if part == "mig" else None,
        "gpu_share": draw(st.floats(0, 1, exclude_min=True)) if part == "gpu_share" else None,
        "gpu_memory_GiB": draw(maybe(ABOVE_ZERO)) if part == "gpu_share" else None,
        "gpu": draw(TEXT) or None,
        "queue": "/".join(draw(st.lists(NAMES, min_size=1, max_size=3))),
        "user": draw(TEXT),
        "priority": draw(st.integers(-1000, 1000) | st.sampled_from(["batch", "serving"])),
        "cpus_per_member": draw(SECONDS),
        "memory_GiB_per_member": draw(SECONDS),
        "nics_per_member": draw(st.integers(0, 16)),
        "checkpoint_s": draw(maybe(ABOVE_ZERO)),
        "time_limit_s": draw(maybe(ABOVE_ZERO)),
        "expected_s": draw(maybe(ABOVE_ZERO)),
        "preemptible": draw(st.booleans()),
        "elastic_min": draw(st.integers(1, members)) if elastic else None,
        "elastic_max": members + draw(st.integers(0, 9)) if elastic else None,
        "required": draw(maybe(NAMES)),
        "preferred": draw(maybe(NAMES)),
        "slice_members": draw(COUNTS) if sliced else None,
        "slice_required": draw(NAMES) if sliced else None,
        "spread": spread,
        "spread_at_most": draw(maybe(COUNTS)) if spread else None,
        "busy": draw(maybe(st.floats(0, 1))),
        "market": draw(maybe(st.sampled_from(["on-demand", "spot", "any"]))),
        "model": draw(maybe(NAMES)),
        "parallelism": tuple((axis, draw(COUNTS)) for axis in draw(AXES)[: draw(st.integers(0, 4))]),
    }  # fmt: skip


TRACES = st.lists(trace_jobs(), max_size=6).map(
    lambda rows: [TraceJob(job_id=f"j{number}", **row) for number, row in enumerate(rows)]
)
