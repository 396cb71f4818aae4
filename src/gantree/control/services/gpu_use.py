"""How busy the GPUs of replicas are, of each round of the counters: the share of the time in which they compute.

It is the utilisation that DCGM or NVML tells, as autoscalers on GPUs use it elsewhere; without it, the share of the
unit that is most active. A GPU that several replicas share counts for each of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gantree.control.nodes.gpu_use_watch import Figures
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.events import Event
from gantree.services.load import Measured
from gantree.telemetry.activity import share_computing

Shares = Mapping[str, Mapping[int, float]]
"""By node and GPU."""


@dataclass(slots=True)
class ReplicaGpuUse:
    """The last round of all GPUs, and when it was."""

    _shares: Shares = field(default_factory=dict)
    _at_s: float = 0.0

    def judge(self, told: Figures, fabric: object, now: float) -> Shares:
        """The share of each GPU that answered."""
        return {
            node: {
                gpu: share
                for gpu, figures in of_gpu.items()
                if (share := share_computing(figures)) is not None
            }
            for node, of_gpu in told.items()
        }

    def events(self, judged: Shares, ledger: Ledger, now: float, epoch: int) -> tuple[Event, ...]:
        """Keep the round; nothing of it goes on record."""
        self._shares, self._at_s = judged, now
        return ()

    def of(self, replicas: Iterable[JobState]) -> Measured | None:
        """The sum over some replicas of the mean share of their GPUs; None if that of one GPU is not known."""
        means: list[float] = []
        for replica in replicas:
            shares = _shares(self._shares, replica)
            known = [share for share in shares if share is not None]
            if not known or len(known) < len(shares):
                return None
            means.append(sum(known) / len(known))
        return Measured(sum(means), self._at_s) if means else None


def _shares(judged: Shares, state: JobState) -> list[float | None]:
    """Of each GPU of a replica; of one that is shared or cut, that of the whole GPU."""
    if state.placement is None:
        return []
    found: list[float | None] = []
    for member in state.placement.members:
        gpus = [*member.gpus, *(each.gpu for each in member.mig)]
        if member.share is not None:
            gpus.append(member.share.gpu)
        found += [judged.get(member.node, {}).get(gpu) for gpu in gpus]
    return found
