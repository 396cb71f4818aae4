"""Planted bugs: each patch of tests/mutants is applied to a copy of the sources, and must be caught.

    python -m support.mutants                       # `make mutants`: all of them
    python -m support.mutants --only clock-goes-back

A patch begins with a sentence on the bug; an empty line and the diff follow. A bug is caught by the lives under faults
(`support.faults.soak`), from seed 0 on; the first that fails ends the search. The working tree is never touched. What
survives all lives, and a patch that does not apply any more, is a failure.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests" / "mutants"
MOST_LIVES = 200
LONGEST_S = 900.0
"""A bug may keep a life from ending: that is caught, too."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug: the name of its patch, and what it is."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant; caught_by is "" for one that survives."""

    mutant: Mutant
    caught_by: str
    took_s: float
    said: str


def mutants() -> list[Mutant]:
    """All of them, by name."""
    return [Mutant(path.stem, _sentence(path)) for path in sorted(PATCHES.glob("*.patch"))]


def _sentence(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n\n")[0]


def copy_with(mutant: Mutant, place: Path) -> str:
    """Copy the sources with a bug; what the patch said against it, "" if it applied."""
    shutil.copytree(ROOT / "src", place / "src")  # with bytecode, which a changed source outdates
    applied = subprocess.run(
        ["git", "apply", "--verbose", str(PATCHES / f"{mutant.name}.patch")],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(place.parent)},
    )
    return applied.stderr if applied.returncode else ""


def verdict_on(mutant: Mutant, lives: int) -> Verdict:
    """Plant a bug, and run lives until one fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gantree-mutant-") as made:
        place = Path(made)
        refused = copy_with(mutant, place)
        if refused:
            said = refused.strip().splitlines()[-1]
            return Verdict(mutant, "", 0.0, f"the patch does not apply: {said}")
        caught_by, said = _soaked(place, lives)
    return Verdict(mutant, caught_by, time.monotonic() - began, said)


def _soaked(place: Path, lives: int) -> tuple[str, str]:
    """Which life caught it, and what it said."""
    command = [
        sys.executable, "-m", "support.faults.soak",
        "--seeds", str(lives), "--most-failures", "1", "--shrink-s", "0", "--workers", "1",
    ]  # fmt: skip
    path = os.pathsep.join((str(place / "src"), str(ROOT / "tests")))
    try:
        run = subprocess.run(
            command, cwd=place, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": path}, timeout=LONGEST_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "a life that does not end", ""
    found = re.search(r"^seed (\d+): (.*)", run.stdout, re.MULTILINE)
    if found is not None:
        return f"soak, seed {found[1]}", found[2]
    if run.returncode:
        return "", f"the lives did not run: {run.stderr.strip().splitlines()[-1:]}"
    return "", f"survives {lives} lives"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="one mutant, by name")
    parser.add_argument(
        "--lives", type=int, default=MOST_LIVES, help="lives that a mutant must survive"
    )
    given = parser.parse_args()
    chosen = [each for each in mutants() if given.only in (None, each.name)]
    survivors = 0
    print("| planted bug | caught by | seconds | what failed |\n|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        begun = [cores.submit(verdict_on, each, given.lives) for each in chosen]
        for verdict in (each.result() for each in as_completed(begun)):
            survivors += not verdict.caught_by
            mutant, caught = verdict.mutant, verdict.caught_by or "**nothing**"
            said = verdict.said.replace("|", "/")[:140]
            print(
                f"| {mutant.name}: {mutant.what} | {caught} | {verdict.took_s:.0f} | {said} |",
                flush=True,
            )
    print(f"{len(chosen)} planted bugs, {survivors} not caught")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
