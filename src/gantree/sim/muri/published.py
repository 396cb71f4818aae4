"""What Muri published of these runs: raw results of the authors (simulator/draw_fig9-10.py), in seconds.

Mean completion time, makespan and 99th percentile of completion times, for trace3 and trace4 under the rule "every
event". Themis is not replayed here: it solves a convex program at every event.
"""

from dataclasses import dataclass

TRACES = ("trace3", "trace4")


@dataclass(frozen=True, slots=True)
class Published:
    """One policy on one trace."""

    mean_jct_s: float
    makespan_s: float
    p99_jct_s: float


PUBLISHED: dict[tuple[str, str], Published] = {
    ("SRTF", "trace3"): Published(193082, 8174135, 4538891),
    ("SRTF", "trace4"): Published(581983, 14787991, 7768533),
    ("SRSF", "trace3"): Published(185022, 8174135, 4189699),
    ("SRSF", "trace4"): Published(487167, 14887909, 7372568),
    ("Tiresias-L", "trace3"): Published(347213, 8174226, 4983397),
    ("Tiresias-L", "trace4"): Published(1319383, 13073839, 8663312),
    ("Themis", "trace3"): Published(397059, 8172105, 2967333),
    ("Themis", "trace4"): Published(994971, 13793094, 7968472),
}
"""(policy, trace) -> figures."""
