"""Muri's experiment (SIGCOMM'22) replayed: SRTF, SRSF and Tiresias-L on trace3 and trace4, against what was published.

    python benchmarks/muri.py TRACE_DIR [--json FILE]

TRACE_DIR holds trace3.csv.gz, trace4.csv.gz and start_overhead_s.csv. The published rule of overheads ("every event")
proves the experiment; under the rule "start", where only starts cost, there is nothing published to compare with.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from gantree.cli.output.printing import columns
from gantree.sim.muri.orders import ORDERS
from gantree.sim.muri.published import PUBLISHED, TRACES
from gantree.sim.muri.replay import Rule, replay
from gantree.sim.muri.trace import read_muri


def rows(directory: Path) -> Iterator[dict[str, Any]]:
    """A row for each rule, trace and policy."""
    for trace in TRACES:
        jobs = read_muri(directory, trace)
        for rule in get_args(Rule):
            for name, order in ORDERS.items():
                print(f"{trace}, {name}, {rule}", file=sys.stderr)
                ours = replay(jobs, order(), rule)
                published = PUBLISHED[name, trace]
                yield {
                    "trace": trace,
                    "rule": rule,
                    "policy": name,
                    "mean_jct_s": round(ours.mean_jct_s, 1),
                    "published_mean_jct_s": published.mean_jct_s,
                    "deviation": round(ours.mean_jct_s / published.mean_jct_s - 1, 6),
                    "p99_jct_s": round(ours.p99_jct_s, 1),
                    "published_p99_jct_s": published.p99_jct_s,
                    "makespan_s": round(ours.makespan_s, 1),
                    "published_makespan_s": published.makespan_s,
                    "preemptions": ours.preemptions,
                }


HEAD = (
    "TRACE",
    "RULE",
    "POLICY",
    "MEAN JCT s",
    "PUBLISHED",
    "DEVIATION",
    "P99 JCT s",
    "MAKESPAN s",
)


def line(row: dict[str, Any]) -> list[str]:
    """A row for people; under the rule "start" nothing was published."""
    comparable = row["rule"] == "every event"
    return [
        row["trace"],
        row["rule"],
        row["policy"],
        f"{row['mean_jct_s']:.0f}",
        f"{row['published_mean_jct_s']:.0f}" if comparable else "-",
        f"{row['deviation']:+.4%}" if comparable else "-",
        f"{row['p99_jct_s']:.0f}",
        f"{row['makespan_s']:.0f}",
    ]


def main() -> None:
    """Print the table; write the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", help="directory of Muri's traces")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    wanted = parser.parse_args()
    if wanted.directory is None:
        print("not measured: name the directory of Muri's traces", file=sys.stderr)
        return
    found = list(rows(wanted.directory))
    if wanted.json is not None:
        wanted.json.write_text(json.dumps({"rows": found}, indent=1) + "\n", encoding="utf-8")
    print(columns(HEAD, map(line, found)))


if __name__ == "__main__":
    main()
