"""The MPS control daemons of this machine: one for each GPU that gangs share by mps, and Unix user, while they do.

As with MIG instances, what gangs need is compared with what is on record and runs: a control daemon is on record before
it is started, so that the next daemon of gantree ends it if nobody needs it then.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from gantree.executors.local.launch.visible_gpus import MPS, GpuIds
from gantree.executors.local.sharing.mps_control import MpsControl
from gantree.executors.local.sharing.shared_gpus import SharedGpu, shared_gpus
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.executors.local.unix_users import UnixUser
from gantree.model.orders import MemberLaunch, StartGang

FOLDER, RECORD = "mps", "mps.json"
MpsProgramOf = Callable[[str], str | None]
"""The program that starts MPS control daemons on a node; None: the site runs them, or there are none."""


def no_mps_program(node: str) -> str | None:
    """The site runs the MPS control daemons of all nodes."""
    return None


@dataclass(frozen=True, slots=True, order=True)
class Tenancy:
    """A GPU of a node that processes of a Unix user share by mps."""

    node: str
    gpu: int
    uid: int


class MpsDaemons:
    """Starts and ends control daemons below state_dir. One thread at a time may call it but for `variables`.

    Raises OSError where the record cannot be read.
    """

    def __init__(self, state_dir: Path, program_of: MpsProgramOf, gpu_ids: GpuIds) -> None:
        self._state_dir, self._program_of, self._gpu_ids = state_dir, program_of, gpu_ids
        rows = read_json(str(state_dir / RECORD)) or []
        self._control_of: dict[Tenancy, MpsControl] = {
            Tenancy(node, gpu, uid): self._control(program, number, devices, uid)
            for node, gpu, uid, program, number, devices in rows
        }

    @property
    def has_any(self) -> bool:
        """Whether any control daemon is on record."""
        return bool(self._control_of)

    def concerns(self, order: StartGang) -> bool:
        """Whether any member shares a GPU by mps on a node whose control daemons are started here."""
        return any(self._program_of(node) for node, _, _ in shared_gpus(order, MPS))

    def provide(self, order: StartGang, uid: int, unix: UnixUser | None) -> None:
        """Have a control daemon and a server for each GPU that an order shares by mps. Raises as `MpsControl.start`."""
        for node, gpu, _ in sorted(shared_gpus(order, MPS)):
            shared, program = Tenancy(node, gpu, uid), self._program_of(node)
            if program is not None:
                control = self._control_of.get(shared) or self._note(shared, program)
                control.start(unix)

    def end_unused(self, shared: Collection[SharedGpu]) -> None:
        """End the control daemons of GPUs that nobody shares any more. Raises OSError."""
        for one in sorted(self._control_of):
            if (one.node, one.gpu, MPS) not in shared:
                self._control_of[one].quit()
                self._write({**self._control_of, one: None})

    def variables(self, member: MemberLaunch, uid: int) -> dict[str, str]:
        """How the processes of a member find their control daemon; none where the site runs it."""
        if member.share is None or member.share.isolation != MPS:
            return {}
        control = self._control_of.get(Tenancy(member.node, member.share.gpu, uid))
        return {} if control is None else control.variables

    def _note(self, shared: Tenancy, program: str) -> MpsControl:
        numbers = {control.folder.name for control in self._control_of.values()}
        number = next(str(n) for n in range(len(numbers) + 1) if str(n) not in numbers)
        devices = self._gpu_ids(shared.node, (shared.gpu,))
        control = self._control(program, number, devices, shared.uid)
        self._write({**self._control_of, shared: control})
        return control

    def _control(self, program: str, number: str, devices: str, uid: int) -> MpsControl:
        return MpsControl(program, self._state_dir / FOLDER / number, devices, uid)

    def _write(self, control_of: Mapping[Tenancy, MpsControl | None]) -> None:
        left = {shared: control for shared, control in control_of.items() if control is not None}
        rows = [
            (one.node, one.gpu, one.uid, control.program, control.folder.name, control.devices)
            for one, control in left.items()
        ]
        write_json(str(self._state_dir / RECORD), rows)
        self._control_of = left


def uid_of(unix: UnixUser | None) -> int:
    """The user id of processes; None: that of this process."""
    return os.getuid() if unix is None else unix.uid
