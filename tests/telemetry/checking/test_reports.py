"""What follows from what a check found, and what is said of it; with the transports of NCCL's logs."""

from pathlib import Path

import pytest

from gantree.telemetry.checking.figures import PAIR, Figure
from gantree.telemetry.checking.judge import CheckedMember, Fault, Verdict
from gantree.telemetry.checking.member import NOTHING
from gantree.telemetry.checking.member_ranks import transports_of, warnings_of
from gantree.telemetry.checking.report import Found, Rules, outcome_of, sentence_of, state_of
from gantree.telemetry.checking.spec import CheckSpec, Expected

MEMBERS = (CheckedMember("n0", nics=("mlx5_0",)), CheckedMember("n1", nics=("mlx5_0",)))
FIGURES = (Figure(PAIR, (0, 1), 40.0, 42.0),)
FAULT = Fault("n1", None, None, 0.2, "slow")
NAMED = Verdict((FAULT,), (), hung=False)
SHORT = Verdict((), ("n0-n1: 2 GB/s of 42 expected",), hung=False)
HUNG = Verdict((), ("n0-n1: did not end",), hung=True)

SOCKETS = """\
h0:880:887 [0] NCCL INFO NET/IB : No device found.
h0:880:887 [0] NCCL INFO Using network Socket
h0:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0
"""


@pytest.mark.parametrize(
    ("found", "state", "usual", "required", "tried_often"),
    [
        (Found("nccl", NOTHING, FIGURES), "passed", "start", "start", "start"),
        (Found("nccl", NAMED, FIGURES), "short", "replace", "replace", "start"),
        (Found("nccl", SHORT, FIGURES), "short", "start", "fail", "start"),
        (Found("nccl", HUNG, FIGURES, why="60 s were not enough"), "unfinished", "fail", "fail", "fail"),
        (Found("nccl", NOTHING, why="60 s were not enough"), "unfinished", "start", "fail", "start"),
        (Found("", NOTHING, why="no PyTorch", skipped=True), "skipped", "start", "fail", "start"),
        (Found("", NOTHING), "passed", "start", "start", "start"),
    ],
)  # fmt: skip
def test_what_follows(
    found: Found, state: str, usual: str, required: str, tried_often: str
) -> None:
    assert state_of(found) == state
    assert outcome_of(found, Rules(required=False, may_replace=True)) == usual
    assert outcome_of(found, Rules(required=True, may_replace=True)) == required
    assert outcome_of(found, Rules(required=False, may_replace=False)) == tried_often


def test_sentences_say_who_and_how_much() -> None:
    assert sentence_of(Found("nccl", NAMED), MEMBERS) == "node n1 failed the check: slow"
    link = Verdict((Fault(None, None, ("leaf", "l0"), 0.5, "half"),), (), hung=False)
    assert sentence_of(Found("nccl", link), MEMBERS) == "leaf:l0 failed the check: half"
    assert sentence_of(Found("nccl", SHORT, FIGURES), MEMBERS) == (
        "links are slower than expected, nobody stands out: n0-n1: 2 GB/s of 42 expected"
    )


def spec(folder: Path, members: tuple[CheckedMember, ...]) -> CheckSpec:
    return CheckSpec(
        index=0, members=members, processes=(1,) * len(members), address="127.0.0.1", port=1,
        seconds=60.0, folder=folder, cuda=True, required=False, may_replace=True,
        expected=Expected(None, {}, {}, {}),
    )  # fmt: skip


def test_a_fallback_to_sockets_is_a_warning_where_members_have_nics(tmp_path: Path) -> None:
    (tmp_path / "nccl-0.17.log").write_text(SOCKETS)
    asked = spec(tmp_path, MEMBERS)
    (warning,) = warnings_of(asked, transports_of(asked))
    assert warning == (
        "NCCL fell back from RDMA to sockets (channels over NET/Socket (1)); NCCL found no RDMA device"
    )


def test_sockets_are_no_fallback_without_nics_or_inside_one_member(tmp_path: Path) -> None:
    (tmp_path / "nccl-0.17.log").write_text(SOCKETS)
    without = (CheckedMember("n0"), CheckedMember("n1"))
    for members in (without, MEMBERS[:1]):
        asked = spec(tmp_path, members)
        assert warnings_of(asked, transports_of(asked)) == ()
