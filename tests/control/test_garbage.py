"""What is alive for long is set apart, so that no later look for garbage takes long because of it."""

import gc
import subprocess
import sys

from gantree.control.garbage import without_collecting

SCRIPT = """
import gc
from gantree.control.garbage import SURVIVED, set_survivors_apart, take_back

class Knot:
    def __init__(self):
        self.itself = self

longest, at_first = [0], gc.get_freeze_count()
kept = []
for number in range(400_000):
    kept.append([number])
    Knot()
    if number % 1000 == 0:
        set_survivors_apart()
        longest.append(len(gc.get_objects(generation=2)))
print(max(longest) < 100_000, gc.get_freeze_count() - at_first > 300_000)
print(gc.get_freeze_count() - at_first < 500_000)   # garbage was not kept
kept = None
print(gc.get_freeze_count() < 100_000)              # what nothing refers to is freed all the same
knots = [Knot() for _ in range(1000)]
gc.freeze()
knots = None
print(gc.collect() < 1000)
take_back()
print(gc.collect() >= 1000)
"""


def test_the_collector_never_looks_at_what_survived_again_and_loses_nothing_by_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["True"] * 6


def test_garbage_is_looked_for_again_after_what_stays_was_made() -> None:
    assert gc.isenabled()
    with without_collecting():
        assert not gc.isenabled()
        with without_collecting():
            pass
        assert not gc.isenabled(), "it was said twice"
    assert gc.isenabled()
