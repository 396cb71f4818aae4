"""MIG configs and GPU config profiles: the layouts that the manager of a node's GPUs can give them, by name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigLayout:
    """How some GPUs of a node are partitioned. gpus are indices, None for all of them.

    instances are (profile, how many on each GPU); on says whether MIG is enabled: without, GPUs are whole. chosen: it
    is for some GPU models only.
    """

    gpus: tuple[int, ...] | None
    on: bool
    instances: tuple[tuple[str, int], ...] = ()
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class MigConfig:
    """A named config of mig-parted: layouts, of which a later one overrides earlier ones."""

    name: str
    layouts: tuple[MigLayout, ...]


@dataclass(frozen=True, slots=True)
class GpuConfigProfile:
    """A named profile of AMD's device config manager: so many GPUs in a mode, with a mode of the memory.

    sets are ("cpx", "nps1", GPUs); skipped is how many GPUs stay as they are.
    """

    name: str
    sets: tuple[tuple[str, str, int], ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class PartitionNodes:
    """Which nodes may be given other configs, by their labels, and the configs and profiles that managers know."""

    selector: tuple[tuple[str, str], ...]
    configs: tuple[MigConfig, ...]
    profiles: tuple[GpuConfigProfile, ...] = ()
