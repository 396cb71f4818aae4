"""The profiles of AMD's device config manager, as its config.json or as the ConfigMap that keeps it.

{"gpu-config-profiles": {
    "cpx": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 8}]}}}

https://github.com/ROCm/device-config-manager, docs/configuration/configmap.md. A ConfigMap has this text under
`config.json`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gantree.formats.config_maps import Problems, read_top
from gantree.formats.validation.forms import refuse
from gantree.model.mig_configs import GpuConfigProfile
from gantree.text.document import Rows, Table

PROFILES, IN_CONFIG_MAP = "gpu-config-profiles", "config.json"
MODES = ("SPX", "DPX", "TPX", "QPX", "CPX")
_MEMORY = re.compile(r"NPS[1248]")
_MOST_GPUS = 64


def read_gpu_config_profiles(text: str, source: str) -> tuple[GpuConfigProfile, ...]:
    """Read the text of a file, or of a ConfigMap. source names it in errors. Raises BadFields."""
    top, where = read_top(text, source, IN_CONFIG_MAP, "the text of its profiles")
    reader = _Reader()
    profiles = tuple(reader.profiles(top))
    refuse(reader.problems.found, where)
    return profiles


@dataclass(slots=True)
class _Reader:
    problems: Problems = field(default_factory=Problems)

    def profiles(self, top: Any) -> Iterator[GpuConfigProfile]:
        named = top.get(PROFILES) if isinstance(top, Table) else None
        if not isinstance(named, Table):
            line = top.line_of(PROFILES) if isinstance(top, Table) else 1
            self.problems.wrong(line, PROFILES, named, "a mapping of names to profiles")
            return
        for name, told in named.items():
            if isinstance(told, Table) and isinstance(told.get("profiles"), Rows):
                sets = tuple(self._sets(told.get("profiles")))
                yield GpuConfigProfile(name, sets, self._skipped(told))
            else:
                line, where = named.line_of(name), named.path_of(name)
                self.problems.wrong(line, where, told, "a mapping with a list `profiles`")

    def _sets(self, rows: Any) -> Iterator[tuple[str, str, int]]:
        for number, row in enumerate(rows):
            if not isinstance(row, Table):
                self.problems.wrong(rows.line_of(number), rows.path_of(number), row, "a mapping")
                continue
            mode, memory = row.get("computePartition"), row.get("memoryPartition")
            count: Any = row.get("numGPUsAssigned")
            if mode not in MODES:
                self.problems.wrong_field(row, "computePartition", f"one of {', '.join(MODES)}")
            elif not isinstance(memory, str) or not _MEMORY.fullmatch(memory):
                self.problems.wrong_field(row, "memoryPartition", "NPS1, NPS2, NPS4 or NPS8")
            elif not _is_count(count):
                self.problems.wrong_field(
                    row, "numGPUsAssigned", f"a number from 1 to {_MOST_GPUS}"
                )
            else:
                yield mode.lower(), memory.lower(), count

    def _skipped(self, told: Table) -> int:
        """How many GPUs are skipped."""
        skipped = told.get("skippedGPUs")
        ids = skipped.get("ids") if isinstance(skipped, Table) else None
        if skipped is not None and not isinstance(ids, Rows):
            self.problems.wrong_field(told, "skippedGPUs", "a mapping with a list `ids`")
        return len(ids) if isinstance(ids, Rows) else 0


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 1 <= value <= _MOST_GPUS
