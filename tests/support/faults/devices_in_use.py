"""Who has a process on which device of the simulated cluster: written from the words of an order, not from a ledger."""

from gantree.model.orders import MemberLaunch

ROUNDING = 1e-6


class DevicesInUse:
    """The members that live, by an owner of the caller's, with what each uses on its node."""

    def __init__(self) -> None:
        self._launch_of: dict[tuple[str, int, int, int], MemberLaunch] = {}

    def begin(self, owner: tuple[str, int, int, int], launch: MemberLaunch) -> list[str]:
        """A member starts: what it takes that others use, in words."""
        broken = [
            f"{owner} and {other} both run on {launch.node}: {why}"
            for other, theirs in self._launch_of.items()
            if theirs.node == launch.node and (why := _clash(launch, theirs))
        ]
        broken += self._overfull(owner, launch)
        self._launch_of[owner] = launch
        return broken

    def end(self, owner: tuple[str, int, int, int]) -> None:
        """Nothing is left of a member."""
        self._launch_of.pop(owner, None)

    @property
    def owners(self) -> list[tuple[str, int, int, int]]:
        """All members that live."""
        return list(self._launch_of)

    def _overfull(self, owner: tuple[str, int, int, int], launch: MemberLaunch) -> list[str]:
        """Shares of one GPU are no more than the whole."""
        if launch.share is None:
            return []
        gpu, used = launch.share.gpu, launch.share.compute
        for theirs in self._launch_of.values():
            if theirs.node == launch.node and theirs.share and theirs.share.gpu == gpu:
                used += theirs.share.compute
        return [f"{owner}: {used:g} of GPU {gpu} of {launch.node}"] if used > 1 + ROUNDING else []


def _clash(one: MemberLaunch, other: MemberLaunch) -> str:
    """What two members on one node both use, that only one may; "" for nothing."""
    both = {*one.gpus, *one.mig} & {*other.gpus, *other.mig}
    nics = set(one.nics) & set(other.nics)
    whole = set(one.gpus) & _parted(other) | set(other.gpus) & _parted(one)
    found = sorted(map(str, both | whole)) + sorted(nics)
    return ", ".join(found)


def _parted(launch: MemberLaunch) -> set[int]:
    """The GPUs of which it uses a part."""
    return {part.gpu for part in launch.mig} | ({launch.share.gpu} if launch.share else set())
