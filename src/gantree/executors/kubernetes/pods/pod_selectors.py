"""Label selectors with their namespaces: the pods that an affinity term or a spread constraint means."""

from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Pod
from gantree.executors.kubernetes.apiserver.selectors import digest, matches
from gantree.executors.kubernetes.pods.ports import exclusive_devices
from gantree.executors.kubernetes.pods.self_affinity import self_affinity_devices

_EVERY = "*"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods of some namespaces (None: of all) that match a label selector.

    counted_by is a device by which the core counts such pods itself (`ports`, `self_affinity`): pods that hold it do
    not match. skip_terminating: pods that are being deleted do not match either.
    """

    namespaces: frozenset[str] | None
    selector: LabelSelector
    counted_by: str = ""
    skip_terminating: bool = False

    @property
    def name(self) -> str:
        """Selectors of one name match the same pods."""
        spaces = [_EVERY] if self.namespaces is None else sorted(self.namespaces)
        return (
            f"{','.join(spaces)}/{digest(self.selector)}/{self.counted_by}/{self.skip_terminating}"
        )

    def matches(self, pod: Pod) -> bool:
        """Whether a pod matches."""
        if self.skip_terminating and pod.metadata.deletion_timestamp is not None:
            return False
        at_home = self.namespaces is None or pod.metadata.namespace in self.namespaces
        found = at_home and matches(self.selector, pod.metadata.labels)
        return found and not (self.counted_by and self._is_known(pod))

    def _is_known(self, pod: Pod) -> bool:
        return self.counted_by in exclusive_devices(
            pod
        ) or self.counted_by in self_affinity_devices(pod)
