"""The options of `gantree up` on what jobs may take of the disk, on a real daemon whose job writes too much."""

from pathlib import Path

import pytest

from cli.conftest import Gantree
from support.daemon import Program

CAP = 2 << 20
TOO_MUCH = "yes 'forty characters of text in each line...' | head -c 64M; echo; echo the end"


def test_output_is_capped_and_every_command_goes_on_over_the_gap(
    gantree: Gantree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Program("up", "--virtual", "dgx-h100:1", "--log-cap", "2MiB") as program:
        program.says("ready")
        ran = gantree("run", "--name", "much", "--", "sh", "-c", TOO_MUCH)
        assert ran.code == 0
        whole = gantree("logs", "much").out
        (gap,) = [line for line in whole.splitlines() if "gantree: " in line]
        assert gap.startswith("[0] gantree: ")
        assert whole.endswith("[0] the end\n")
        assert gantree("logs", "much", "-n", 2).out.splitlines()[-1] == "[0] the end"
        assert gantree("logs", "much", "--rank", 0).out.endswith("the end\n")
        log = tmp_path / "state/runs/much/1/log/rank-0.log"
        assert log.stat().st_blocks * 512 <= CAP < log.stat().st_size
        program.stop()


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--log-cap", "much", "allowed: a size such as 512MiB"),
        ("--log-cap", "1KiB", "at least 1MiB"),
        ("--keep-free", "101%", "a share of the disk such as 5%"),
        ("--keep-runs", "long", "a duration such as 90s"),
        ("--most-runs", "-1GiB", "a size such as 10GiB"),
    ],
)
def test_limits_that_are_none_are_bad_input(
    gantree: Gantree, tmp_path: Path, option: str, value: str, told: str
) -> None:
    outcome = gantree("up", "--virtual", "dgx-h100:1", "--state", tmp_path, f"{option}={value}")
    assert outcome.code == 2
    assert option in outcome.err
    assert told in outcome.err
