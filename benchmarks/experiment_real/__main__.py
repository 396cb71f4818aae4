"""`make experiment-real`: real training on one machine whose network has leaves and a spine.

    PYTHONPATH=src:benchmarks python -m experiment_real [--python PYTHON] [--steps 6] [--only GROUP] [--page FILE]

Needs root, `ip` and `tc` (iproute2) with tbf, and torch in the Python that --python names (this one by default); else
it says what is missing and ends with 0. A scenario during which the processors idle less than 20 % is void: then they,
and not the links, may have limited a step; the run ends with 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from experiment_real import network, page
from experiment_real.run import Measured, measure, remove_scratch, tables
from experiment_real.scenarios import SCENARIOS

LEAST_IDLE = 0.2


def missing(python: str) -> str:
    """Why it cannot run here; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program} (package iproute2)"
    try:
        network.build()
    except subprocess.CalledProcessError as error:
        return f"the network cannot be made: {' '.join(error.cmd)}: {error.stderr.strip()}"
    finally:
        network.remove()
    found = subprocess.run(
        [python, "-c", "import torch.distributed"], check=False, capture_output=True
    )
    if found.returncode != 0:
        return (
            f"{python} has no torch (pip install 'gantree[torch]'); --python names another Python"
        )
    return ""


def main() -> None:
    """Run all scenarios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--steps", type=int, default=6, help="steps that are measured")
    parser.add_argument("--only", help="one group: placement, rank order, two jobs")
    parser.add_argument("--page", type=Path, help="write the page of the experiment there")
    parser.add_argument(
        "--clean", action="store_true", help="remove what a killed run has left, and end"
    )
    options = parser.parse_args()
    if options.clean:
        network.remove()
        remove_scratch()
        return
    why = missing(options.python)
    if why:
        print(f"Skipped: {why}.")
        return
    remove_scratch()
    found: list[Measured] = []
    network.build()
    try:
        for scenario in SCENARIOS:
            if options.only in (None, scenario.group):
                began = time.monotonic()
                found.append(measure(scenario, options.python, options.steps))
                print(f"{scenario.key}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        network.remove()
    print("\n".join(tables(found, LEAST_IDLE)))
    if options.page is not None:
        page.write(options.page, found, LEAST_IDLE)
    sys.exit(any(each.idle < LEAST_IDLE for each in found))


if __name__ == "__main__":
    main()
