"""Pods of some namespaces that are like a selector: what terms of other pods are about."""

from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Pod
from gantree.executors.kubernetes.apiserver.selectors import digest, matches
from gantree.executors.kubernetes.pods.ports import sole_devices
from gantree.executors.kubernetes.pods.self_affinity import kin_devices

_EVERY = "*"


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods of some namespaces (None: of all) that are like a selector.

    sole is a device by which the core knows of them already (`ports`, `kin`): pods that take it are not counted. stay:
    those that were told to go are not, either.
    """

    namespaces: frozenset[str] | None
    selector: LabelSelector
    sole: str = ""
    stay: bool = False

    @property
    def name(self) -> str:
        """Kinds of one name are the same."""
        spaces = [_EVERY] if self.namespaces is None else sorted(self.namespaces)
        return f"{','.join(spaces)}/{digest(self.selector)}/{self.sole}/{self.stay}"

    def has(self, pod: Pod) -> bool:
        """Whether a pod is one of these."""
        if self.stay and pod.metadata.deletion_timestamp is not None:
            return False
        at_home = self.namespaces is None or pod.metadata.namespace in self.namespaces
        found = at_home and matches(self.selector, pod.metadata.labels)
        return found and not (self.sole and self._is_known(pod))

    def _is_known(self, pod: Pod) -> bool:
        return self.sole in sole_devices(pod) or self.sole in kin_devices(pod)
