"""Environments of the model servers and load generators: one each, of exactly what its lock pins and hashes.

    PYTHONPATH=benchmarks python -m serving.environments DIRECTORY [guidellm] [aiperf] [dynamo] [llama]

Each is DIRECTORY/NAME; one that was made of the same lock stays as it is. `llama` compiles llama.cpp for its processor
(cmake and a C++ compiler are needed; four minutes on two cores).
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("guidellm", "aiperf", "dynamo", "llama")
LOCKS = Path(__file__).with_name("requirements")


def made(place: Path, name: str) -> Path:
    """The interpreter of an environment, which is made or renewed where its lock is another."""
    home, lock = place / name, LOCKS / f"{name}.txt"
    python, mark = home / "bin" / "python", home / "lock.txt"
    if mark.exists() and mark.read_text() == lock.read_text():
        return python
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    options = ("--quiet", "--no-deps", "--require-hashes", "-r", lock)
    subprocess.run([python, "-m", "pip", "install", *options], check=True)
    mark.write_text(lock.read_text())
    return python


def main() -> None:
    """Make those that are named, or all."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    options.add_argument("place", type=Path)
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    given = options.parse_args()
    unknown = sorted(set(given.names) - set(NAMES))
    if unknown:
        options.error(f"there is no environment {unknown[0]}; there are {', '.join(NAMES)}")
    for name in given.names or NAMES:
        print(name, made(given.place, name), flush=True)


if __name__ == "__main__":
    main()
