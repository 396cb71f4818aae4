"""A prefix of commands that makes the ranks of a check slow: `[*SLOWED, command...]`, also as `launch` of a node.

It stands for a sick machine; no product code knows of it. All programs below it find `slow_member/sitecustomize.py`.
"""

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "slow_member"
SLOWED = ["sh", "-c", f'PYTHONPATH="{_FOLDER}:$PYTHONPATH" exec "$@"', "slowed"]
