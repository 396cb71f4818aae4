"""The MIG instances that gantree created: on record before they are created, so that a crash leaves none unknown."""

from pathlib import Path

from gantree.executors.local.shim.shim import read_json, write_json
from gantree.model.placements import MigPart

FILE = "partitions.json"
NodePart = tuple[str, MigPart]
"""A MIG instance of a node."""


class CreatedInstances:
    """The MIG instances that gantree created, in a file. Raises OSError where it cannot be read or written."""

    def __init__(self, state_dir: Path) -> None:
        self._file = str(state_dir / FILE)
        rows = read_json(self._file) or []
        self._uuid_of_part: dict[NodePart, str] = {
            (node, MigPart(gpu, profile, at)): uuid for node, gpu, profile, at, uuid in rows
        }

    def has(self, node: str, part: MigPart, uuid: str) -> bool:
        """Whether gantree created the instance that is there: with this UUID, if creating it came to an end."""
        recorded = self._uuid_of_part.get((node, part))
        return recorded is not None and (recorded == uuid or not recorded)

    def on(self, node: str, gpu: int) -> list[MigPart]:
        """Those of one GPU, oldest first."""
        return [part for name, part in self._uuid_of_part if (name, part.gpu) == (node, gpu)]

    def every(self) -> list[NodePart]:
        """All of them, oldest first."""
        return list(self._uuid_of_part)

    def note(self, node: str, part: MigPart, uuid: str) -> None:
        """Note one that is about to be created (with no UUID), or was."""
        if self._uuid_of_part.get((node, part)) != uuid:
            self._uuid_of_part[node, part] = uuid
            self._write()

    def remove(self, node: str, part: MigPart) -> None:
        """Forget one that is not there any more."""
        if self._uuid_of_part.pop((node, part), None) is not None:
            self._write()

    def _write(self) -> None:
        rows = [
            (node, part.gpu, part.profile, part.start, uuid)
            for (node, part), uuid in self._uuid_of_part.items()
        ]
        write_json(self._file, rows)
