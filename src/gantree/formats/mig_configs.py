"""The configs of NVIDIA's mig-parted, as a file of it or as the ConfigMap that the GPU Operator keeps it in.

version: v1
mig-configs:
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices: {1g.10gb: 7}

https://github.com/NVIDIA/mig-parted, `api/spec/v1`. A ConfigMap has this text under `config.yaml`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gantree.formats.config_maps import Problems, read_top
from gantree.formats.validation.forms import refuse
from gantree.model.mig_configs import MigConfig, MigLayout
from gantree.text.document import Rows, Table, Truth

CONFIGS, IN_CONFIG_MAP = "mig-configs", "config.yaml"
_MOST_INSTANCES = 64
_LAYOUT_FIELDS = frozenset({"device-filter", "devices", "mig-enabled", "mig-devices"})


def read_mig_configs(text: str, source: str) -> tuple[MigConfig, ...]:
    """Read the text of a file, or of a ConfigMap. source names it in errors. Raises BadFields."""
    top, where = read_top(text, source, IN_CONFIG_MAP, "the text of mig-parted")
    reader = _Reader()
    configs = tuple(reader.configs(top))
    refuse(reader.problems.found, where)
    return configs


@dataclass(slots=True)
class _Reader:
    problems: Problems = field(default_factory=Problems)

    def configs(self, top: Any) -> Iterator[MigConfig]:
        configs = top.get(CONFIGS) if isinstance(top, Table) else None
        if not isinstance(configs, Table):
            line = top.line_of(CONFIGS) if isinstance(top, Table) else 1
            self.problems.wrong(line, CONFIGS, configs, "a mapping of names to lists of layouts")
            return
        for name, rows in configs.items():
            if isinstance(rows, Rows):
                yield MigConfig(name, tuple(self._layouts(rows)))
            else:
                self.problems.wrong(
                    configs.line_of(name), configs.path_of(name), rows, "a list of layouts"
                )

    def _layouts(self, rows: Rows) -> Iterator[MigLayout]:
        for number, row in enumerate(rows):
            if isinstance(row, Table):
                yield self._layout(row)
            else:
                self.problems.wrong(rows.line_of(number), rows.path_of(number), row, "a layout")

    def _layout(self, row: Table) -> MigLayout:
        for name in row:
            if name not in _LAYOUT_FIELDS:
                where, allowed = row.path_of(name), ", ".join(sorted(_LAYOUT_FIELDS))
                self.problems.wrong(row.line_of(name), where, name, allowed)
        on = row.get("mig-enabled")
        if not isinstance(on, Truth):
            self.problems.wrong_field(row, "mig-enabled", "true or false")
        return MigLayout(
            self._gpus(row), bool(on), tuple(self._instances(row)), bool(row.get("device-filter"))
        )

    def _gpus(self, row: Table) -> tuple[int, ...] | None:
        told = row.get("devices")
        if told == "all":
            return None
        if isinstance(told, Rows) and all(_is_count(each, 0) for each in told):
            return tuple(told)
        self.problems.wrong_field(row, "devices", "all, or a list of GPU indices")
        return None

    def _instances(self, row: Table) -> Iterator[tuple[str, int]]:
        told = row.get("mig-devices")
        if told is None:
            return
        if not isinstance(told, Table):
            self.problems.wrong_field(row, "mig-devices", "a mapping of profiles to numbers")
            return
        for profile, number in told.items():
            if _is_count(number, 1):
                yield profile, number
            else:
                allowed = f"a whole number from 1 to {_MOST_INSTANCES}"
                self.problems.wrong(told.line_of(profile), told.path_of(profile), number, allowed)


def _is_count(value: Any, least: int) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST_INSTANCES
    )
