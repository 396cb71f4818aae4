"""Who has GPUs or MIG instances of which node: gangs that are placed, and pods that are nobody's."""

from collections.abc import Iterator, Sequence

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.nodes.mig_layouts import is_of_gpus
from gantree.model.placements import MemberPlacement


class GpuHolders:
    """Who has GPUs or instances of which node; read when first asked."""

    def __init__(self, decided: LedgerView) -> None:
        self._decided = decided
        self._jobs: dict[str, list[JobView]] | None = None
        self._others: frozenset[str] = frozenset()

    def on(self, node: str) -> list[JobView]:
        """The jobs that have any on a node."""
        if self._jobs is None:
            self._jobs = {}
            for state in self._decided.placed_jobs():
                for name in _nodes_with_gpus(state.placement.members if state.placement else ()):
                    self._jobs.setdefault(name, []).append(state)
            foreign = self._decided.site.foreign_holders().values()
            held = (each.members for each in self._decided.held_placements())
            self._others = frozenset(
                name for members in (*foreign, *held) for name in _nodes_with_gpus(members)
            )
        return self._jobs.get(node, [])

    def has_any(self, node: str) -> bool:
        """Whether anybody has any on a node, or it is held for a job that waits."""
        return bool(self.on(node)) or node in self._others

    def are_below(self, node: str, job: JobView | None) -> bool:
        """Whether all of them are jobs that may be stopped, of lower priority than a job."""
        if job is None:
            return False
        jobs = self.on(node)
        may_go = all(each.spec.preemptible and each.priority < job.priority for each in jobs)
        return may_go and node not in self._others


def _nodes_with_gpus(members: Sequence[MemberPlacement]) -> Iterator[str]:
    for member in members:
        if member.gpus or any(is_of_gpus(name) for name, _ in member.devices):
            yield member.node
