"""Partitions of GPUs: the profiles of each model, their start positions, and which fit beside which.

A GPU that is cut by MIG has memory slices and compute slices. An instance of a profile takes a run of memory slices,
which may start at certain slices only, and so many compute slices ("3g" is three), wherever they are. Instances fit
together when their memory slices do not overlap, compute slices suffice, no profile is there more often than it may
be, and the media engines suffice: the "+me" profiles take an engine of which there is one, "+me.all" all of them, "-me"
none.

AMD's GPUs have compute partition modes instead, each of a whole GPU: DPX, TPX, QPX and CPX divide its XCDs into 2, 3, 4
and as many equal partitions as there are XCDs. They are MIG tables in which a slice is an XCD with its part of the
memory, a profile is a mode ("cpx"), and all instances of a GPU are of one profile (`uniform`). SPX is the whole GPU,
out of MIG mode.

Where the numbers are from. Profiles, fractions of memory and of SMs, numbers of instances and media engines: NVIDIA's
MIG user guide (A30, A100, H100, H200, B200, RTX PRO 4500, 5000 and 6000); those of B300, GB200, GB300 and GH200 144 GB:
the configurations of NVIDIA/mig-parted, which also name three profiles of a GB200 with 189 GB. Places: `nvidia-smi mig
-lgipp` prints of A30, A100, H100 and H100 NVL, which are alike for the last three. No print of H200, GH200, B200, B300,
GB200 or GB300 was found: they have the same fractions and numbers as H100, so its places are taken for them
(`places_inferred`); so are A30's places, by the same reasoning, for the RTX PRO boards. go-nvml's mock gives other
places for H100, H200 and B200; prints of real H100 contradict it. One table serves all boards of a memory (A800 as
A100, H800 as H100, H20 and GH200 96 GB as H100 96 GB). Modes of AMD's: AMD SMI's guide to GPU partitioning (8 XCDs of
an MI300X, 6 of an MI300A; for the latter it also names DPX, which neither its users' guides nor the driver's rule, XCDs
in fours, have), and AMD's guide to its cloud, by which MI325X and MI355X have the modes of MI300X; MI350X is taken to
be like MI355X. Which of them a machine offers, its firmware decides (`amd-smi partition --accelerator`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean
from gantree.topology.hardware.gpu_models import gpu_model


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One profile: compute and memory slices of an instance, where its memory may start, how many there may be.

    media is how many of the table's media engines it takes, extra whether it takes the one that only a "+me" profile or
    the whole GPU has (the optical flow engine).
    """

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    most: int
    media: int = 0
    extra: bool = False


@dataclass(frozen=True, slots=True)
class MigInstance:
    """An instance of a profile whose memory begins at a slice."""

    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class MigTable:
    """The profiles of a GPU, smallest first. media_engines counts those that all instances share.

    uniform: the profile is a mode of the whole GPU, which has instances of it at all places, and no others.
    """

    name: str
    memory_slices: int
    compute_slices: int
    media_engines: int
    profiles: tuple[MigProfile, ...]
    places_inferred: bool = False
    uniform: bool = False

    def profile(self, name: str) -> MigProfile:
        """Return the profile of a name. BadInput with the nearest one."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        known = [profile.name for profile in self.profiles]
        hint = did_you_mean(name, known) or f"Known: {', '.join(known)}."
        raise BadInput(f"no MIG profile {name!r} on {self.name}. {hint}")

    def placements(self, profile: str) -> tuple[int, ...]:
        """Return the memory slices at which instances of a profile may start. BadInput for an unknown one."""
        return self.profile(profile).starts

    def fits(self, taken: Sequence[MigInstance], profile: str) -> tuple[int, ...]:
        """Return where an instance of a profile fits beside those that are there; empty where it does not."""
        wanted = self.profile(profile)
        held = [self.profile(instance.profile) for instance in taken]
        if not self._shared_suffice([*held, wanted]):
            return ()
        used = {slice_ for each in taken for slice_ in self.slices(each)}
        return tuple(
            start
            for start in wanted.starts
            if used.isdisjoint(self.slices(MigInstance(profile, start)))
        )

    def filled(self, taken: Sequence[MigInstance]) -> tuple[MigInstance, ...]:
        """Return the instances that are there as soon as these are: in a mode of the whole GPU, those of all places."""
        if not self.uniform or not taken:
            return tuple(taken)
        return tuple(MigInstance(taken[0].profile, at) for at in self.placements(taken[0].profile))

    def slices(self, instance: MigInstance) -> range:
        """Return the memory slices of an instance. BadInput for a place that its profile does not have."""
        profile = self.profile(instance.profile)
        if instance.start not in profile.starts:
            raise BadInput(
                f"{profile.name} on {self.name} cannot start at {instance.start}, "
                f"only at {', '.join(map(str, profile.starts))}"
            )
        return range(instance.start, instance.start + profile.memory_slices)

    def arranged(self, profiles: Sequence[str]) -> tuple[MigInstance, ...] | None:
        """Return places for all of these profiles together, in their order, None where they do not all fit."""
        largest_first = sorted(
            range(len(profiles)), key=lambda at: -self.profile(profiles[at]).memory_slices
        )
        found = next(self._arrangements((), [profiles[at] for at in largest_first]), None)
        if found is None:
            return None
        return tuple(instance for _, instance in sorted(zip(largest_first, found, strict=True)))

    def _arrangements(
        self, taken: tuple[MigInstance, ...], rest: Sequence[str]
    ) -> Iterator[tuple[MigInstance, ...]]:
        if not rest:
            yield taken
            return
        for start in self.fits(taken, rest[0]):
            if not _repeats(taken, rest[0], start):
                yield from self._arrangements((*taken, MigInstance(rest[0], start)), rest[1:])

    def _shared_suffice(self, profiles: Sequence[MigProfile]) -> bool:
        """Whether compute slices, media engines and numbers of instances allow all of these."""
        return (
            sum(profile.compute_slices for profile in profiles) <= self.compute_slices
            and sum(profile.media for profile in profiles) <= self.media_engines
            and sum(profile.extra for profile in profiles) <= 1
            and all(profiles.count(profile) <= profile.most for profile in set(profiles))
            and not (self.uniform and len(set(profiles)) > 1)
        )


def _repeats(taken: Sequence[MigInstance], profile: str, start: int) -> bool:
    """Whether equal profiles would stand in falling order: the same arrangement, met before."""
    return bool(taken) and taken[-1].profile == profile and start < taken[-1].start


def mig_table(gpu: str | None) -> MigTable | None:
    """Return the table of a GPU model ("A100-80GB"), None for one without partitions, or that is not known."""
    model = gpu_model(gpu)
    return TABLES[model.mig] if model and model.mig else None


_ANY_OF_7 = tuple(range(7))


def _sevenths(
    name: str, smallest: int, quarter: int, half: int, full: int, *, inferred: bool = False
) -> MigTable:
    """A GPU of 7 compute and 8 memory slices, by the GB that its profiles name."""
    profiles = (
        MigProfile(f"1g.{smallest}gb", 1, 1, _ANY_OF_7, 7),
        MigProfile(f"1g.{smallest}gb+me", 1, 1, _ANY_OF_7, 1, extra=True),
        MigProfile(f"1g.{quarter}gb", 1, 2, (0, 2, 4, 6), 4),
        MigProfile(f"2g.{quarter}gb", 2, 2, (0, 2, 4), 3),
        MigProfile(f"3g.{half}gb", 3, 4, (0, 4), 2),
        MigProfile(f"4g.{half}gb", 4, 4, (0,), 1),
        MigProfile(f"7g.{full}gb", 7, 8, (0,), 1, extra=True),
    )
    return MigTable(name, 8, 7, 0, profiles, inferred)


def _rtx_pro(name: str, slices: int, GB: int, media: int, of_one: int, *, me: bool) -> MigTable:
    """An RTX PRO board of 2 or 4 slices of GB each; of_one is how many media engines one slice brings.

    me says whether the smallest profile comes as "+me", with the engine of which there is one.
    """
    profiles: list[MigProfile] = []
    size = 1
    while size <= slices:
        starts = tuple(range(0, slices, size))
        base, whole = f"{size}g.{size * GB}gb", size == slices
        own = media if whole else size * of_one
        profiles += [
            MigProfile(base, size, size, starts, len(starts), own, whole),
            MigProfile(f"{base}+gfx", size, size, starts, len(starts), own, whole),
        ]
        if me and size == 1:
            profiles.append(MigProfile(f"{base}+me", size, size, starts, 1, own, extra=True))
        if not whole:
            profiles += [
                MigProfile(f"{base}+me.all", size, size, starts, 1, media, extra=True),
                MigProfile(f"{base}-me", size, size, starts, len(starts)),
            ]
        size *= 2
    return MigTable(name, slices, slices, media, tuple(profiles), places_inferred=True)


def _compute_partitions(name: str, xcds: int, **partitions: int) -> MigTable:
    """A GPU of AMD with so many XCDs; partitions are how many each mode makes."""
    profiles = []
    for mode, count in sorted(partitions.items(), key=lambda each: -each[1]):
        size = xcds // count
        profiles.append(MigProfile(mode, size, size, tuple(range(0, xcds, size)), count))
    return MigTable(name, xcds, xcds, 0, tuple(profiles), uniform=True)


_A30 = MigTable(
    "A30-24GB",
    4,
    4,
    0,
    (
        MigProfile("1g.6gb", 1, 1, (0, 1, 2, 3), 4),
        MigProfile("1g.6gb+me", 1, 1, (0, 1, 2, 3), 1, extra=True),
        MigProfile("2g.12gb", 2, 2, (0, 2), 2),
        MigProfile("2g.12gb+me", 2, 2, (0, 2), 1, extra=True),
        MigProfile("4g.24gb", 4, 4, (0,), 1, extra=True),
    ),
)

_GB200_189 = MigTable(
    "GB200-189GB",
    8,
    7,
    0,
    (
        MigProfile("3g.95gb", 3, 4, (0, 4), 2),
        MigProfile("4g.95gb", 4, 4, (0,), 1),
        MigProfile("7g.189gb", 7, 8, (0,), 1, extra=True),
    ),
    places_inferred=True,
)
"""Of it only these names are known; no GPU model points here."""

_ALL = (
    _A30,
    _sevenths("A100-40GB", 5, 10, 20, 40),
    _sevenths("A100-80GB", 10, 20, 40, 80),
    _sevenths("H100-80GB", 10, 20, 40, 80),
    _sevenths("H100-94GB", 12, 24, 47, 94),
    _sevenths("H100-96GB", 12, 24, 48, 96, inferred=True),
    _sevenths("H200-141GB", 18, 35, 71, 141, inferred=True),
    _sevenths("GH200-144GB", 18, 36, 72, 144, inferred=True),
    _sevenths("B200-180GB", 23, 45, 90, 180, inferred=True),
    _sevenths("B300-288GB", 34, 67, 135, 269, inferred=True),
    _sevenths("GB200-186GB", 23, 47, 93, 186, inferred=True),
    _GB200_189,
    _sevenths("GB300-288GB", 35, 70, 139, 278, inferred=True),
    _rtx_pro("RTXPRO6000-96GB", 4, 24, media=4, of_one=1, me=True),
    _rtx_pro("RTXPRO5000-48GB", 2, 24, media=3, of_one=1, me=True),
    _rtx_pro("RTXPRO4500-32GB", 2, 16, media=3, of_one=1, me=False),
    _compute_partitions("MI300A-128GB", 6, tpx=3, cpx=6),
    _compute_partitions("MI300X-192GB", 8, dpx=2, qpx=4, cpx=8),
)

TABLES: Mapping[str, MigTable] = MappingProxyType({table.name: table for table in _ALL})
"""All MIG tables, by the GPU model after which they are named."""
