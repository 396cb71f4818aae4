"""Kubernetes' HorizontalPodAutoscaler in plain steps: a twin that `gantree.services` is held equal to.

After pkg/controller/podautoscaler of Kubernetes (`calcPlainMetricReplicas` with all pods ready,
`stabilizeRecommendationWithBehaviors`, `convertDesiredReplicasWithBehaviorRate` with one policy of type Pods).
"""

from dataclasses import dataclass, field
from math import ceil


@dataclass
class Hpa:
    """One autoscaler with one metric that is averaged over the pods."""

    target: float
    least: int
    most: int
    tolerance: float = 0.1
    up_window_s: float = 0.0
    down_window_s: float = 300.0
    up_pods: int = 0
    up_period_s: float = 60.0
    down_pods: int = 0
    down_period_s: float = 60.0
    recommendations: list[tuple[float, int]] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)

    def sync(self, now: float, current: int, total: float) -> int:
        """Return the number of pods, once per period of the controller."""
        if not self.recommendations:
            self.recommendations.append((now, current))
        average = total / current
        ratio = average / self.target
        desired = current if abs(1.0 - ratio) <= self.tolerance else ceil(ratio * current - 1e-9)
        desired = max(self.least, min(self.most, desired))
        up, down = desired, desired
        for at, recommendation in self.recommendations:
            if at > now - self.up_window_s:
                up = min(up, recommendation)
            if at > now - self.down_window_s:
                down = max(down, recommendation)
        stable = current
        stable = max(stable, up)
        stable = min(stable, down)
        self.recommendations.append((now, desired))
        number = self._at_this_rate(now, current, stable)
        number = max(self.least, min(self.most, number))
        if number != current:
            self.changes.append((now, number - current))
        return number

    def _at_this_rate(self, now: float, current: int, desired: int) -> int:
        if desired > current and self.up_pods:
            added = sum(by for at, by in self.changes if by > 0 and at > now - self.up_period_s)
            gone = sum(-by for at, by in self.changes if by < 0 and at > now - self.up_period_s)
            limit = current - added + gone + self.up_pods
            return min(desired, max(limit, current))
        if desired < current and self.down_pods:
            added = sum(by for at, by in self.changes if by > 0 and at > now - self.down_period_s)
            gone = sum(-by for at, by in self.changes if by < 0 and at > now - self.down_period_s)
            limit = current - added + gone - self.down_pods
            return max(desired, min(limit, current))
        return desired
