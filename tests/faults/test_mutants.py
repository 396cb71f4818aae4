"""Planted bugs: their patches fit today's sources, and one that does not is told. `make mutants` runs them."""

import subprocess
from pathlib import Path

import pytest

from support import mutants
from support.mutants import PATCHES, ROOT, Mutant, Verdict, copy_with, verdict_on

LEAST = 10


def test_there_are_ten_planted_bugs_and_each_says_what_it_is() -> None:
    told = [each.what for each in mutants.mutants()]
    assert len(told) >= LEAST
    assert [what for what in told if not what.endswith(".") or "\n" in what] == []
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("patch", sorted(PATCHES.glob("*.patch")), ids=lambda path: path.stem)
def test_a_planted_bug_fits_the_sources(patch: Path) -> None:
    checked = subprocess.run(
        ["git", "apply", "--check", str(patch)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_a_patch_that_does_not_apply_is_a_survivor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (PATCHES / "clock-goes-back.patch").read_text().replace("max(wall(), not_before)", "x")
    (tmp_path / "old.patch").write_text(old)
    monkeypatch.setattr(mutants, "PATCHES", tmp_path)
    verdict = verdict_on(Mutant("old", "what"), lives=1)
    assert verdict.caught_by == ""
    assert "does not apply" in verdict.said


def test_a_bug_is_planted_in_a_copy(tmp_path: Path) -> None:
    mutant = next(each for each in mutants.mutants() if each.name == "clock-goes-back")
    clock = "src/gantree/control/clock.py"
    before = (ROOT / clock).read_text()
    assert copy_with(mutant, tmp_path) == ""
    assert (tmp_path / clock).read_text() != before == (ROOT / clock).read_text()


def test_a_sound_program_survives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nothing.patch").write_text(
        "Nothing is changed.\n\n"
        "diff --git a/src/gantree/py.typed b/src/gantree/planted\nnew file mode 100644\n--- /dev/null\n"
        "+++ b/src/gantree/planted\n@@ -0,0 +1 @@\n+planted\n"
    )
    monkeypatch.setattr(mutants, "PATCHES", tmp_path)
    verdict = verdict_on(Mutant("nothing", "what"), lives=1)
    assert verdict == Verdict(verdict.mutant, "", verdict.took_s, "survives 1 lives")
