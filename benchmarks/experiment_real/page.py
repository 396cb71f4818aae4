"""docs/experiments/real.md, with its table and date."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from experiment_real.network import NODE_MBIT, UPLINK_MBIT
from experiment_real.run import Measured, tables

TEXT = f"""# Reality check on one machine

    sudo make experiment-real TORCH=/path/to/python

**Question**: do real jobs run as much faster where gantree places and orders them as its cost model says?

**Set-up**: eight virtual nodes under two leaves and a spine, made of network namespaces, veth pairs and bridges on one
machine. Each link is shaped in both directions by a token bucket: a node's to {NODE_MBIT} Mbit/s, a leaf's up-link to
{UPLINK_MBIT} Mbit/s. A daemon starts the ranks through `ip netns exec`; each is a process of torch DDP over gloo with
one layer of 2 MiB of gradients. A step is the median of those that rank 0 measured. `gantree cost` prices the recorded
placement; where two jobs share the up-links each is priced with half of them. Bandwidth is shaped; latency, jitter and
loss are not.

Groups:

* **placement**: four ranks; two nodes of the first leaf are held by others. gantree, then blind placements
  ([baselines](../baselines.md)), then the same two nodes of each leaf in an order that crosses the spine at every hop.
* **rank order**: eight ranks on all nodes, in gantree's order and alternating between the leaves.
* **two jobs**: four ranks each, at the same time: a leaf for each, and two nodes of each leaf for both.

A scenario during which the processors idle less than 20 % is void: they may have limited the step.

"""


def write(path: Path, found: Sequence[Measured], least_idle: float) -> None:
    """Write the page anew."""
    path.write_text(TEXT + result(found, least_idle), encoding="utf-8")


def result(found: Sequence[Measured], least_idle: float) -> str:
    """The table, with its date, and what it says."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    valid = [each for each in found if each.idle >= least_idle]
    worst = max((each.off for each in valid), default=0.0)
    verdict = (
        "no scenario is valid"
        if not valid
        else (
            f"predictions are within {worst:.1f}x in {len(valid)} valid scenarios of {len(found)} (aim: 2x)"
        )
    )
    return "\n".join([f"**Result** ({date}): {verdict}.", "", *tables(found, least_idle), ""])
