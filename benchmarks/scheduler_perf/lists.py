"""The lists (`performance-config.yaml`): test cases, each with operations and workloads that fill in numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
FILE = "performance-config.yaml"


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of a test case. operations have their numbers; folder is where the list is, which paths start from."""

    folder: Path
    group: str
    case: str
    name: str
    operations: Sequence[Json]
    gates: dict[str, bool]
    default_pod: Path | None
    scheduler_config: Path | None

    @property
    def title(self) -> str:
        """Its name among all."""
        return f"{self.group}/{self.case}/{self.name}"

    @property
    def nodes(self) -> int:
        """How many nodes are created."""
        return sum(each["count"] for each in self.operations if each["opcode"] == "createNodes")

    @property
    def pods(self) -> int:
        """How many pods are created, without churn and steady states."""
        return sum(map(_pods_of, self.operations))

    @property
    def has_claims(self) -> bool:
        """Whether it needs the controller that makes claims of templates."""
        return any(each["opcode"] == "createResourceDriver" for each in self.operations)

    def path(self, relative: str) -> Path:
        """A file that the list names."""
        return (self.folder / relative).resolve()


def workloads(root: Path) -> Iterator[Workload]:
    """All workloads of all lists below a folder, in order."""
    for file in sorted(root.rglob(FILE)):
        group = str(file.parent.relative_to(root))
        for case in yaml.safe_load(file.read_text()):
            for workload in case["workloads"]:
                yield _workload(file.parent, group, case, workload)


def largest(found: Sequence[Workload], most_nodes: int, most_pods: int) -> list[Workload]:
    """Of each test case the largest workload within limits; of equal ones the last, whose gates are the newest."""
    chosen: dict[tuple[str, str], Workload] = {}
    for each in found:
        if each.nodes > most_nodes or each.pods > most_pods:
            continue
        best = chosen.get((each.group, each.case))
        if best is None or (each.nodes, each.pods) >= (best.nodes, best.pods):
            chosen[each.group, each.case] = each
    return list(chosen.values())


def _workload(folder: Path, group: str, case: Json, workload: Json) -> Workload:
    params = workload["params"]
    pod, config = case.get("defaultPodTemplatePath"), case.get("schedulerConfigPath")
    return Workload(
        folder,
        group,
        case["name"],
        workload["name"],
        [_with_numbers(each, params) for each in case["workloadTemplate"]],
        {**case.get("featureGates", {}), **workload.get("featureGates", {})},
        None if pod is None else folder / pod,
        None if config is None else folder / config,
    )


def _with_numbers(operation: Json, params: Json) -> Json:
    """An operation with `countParam: $n` as `count: 10`, and so for every name that ends so; count is 1 without any."""
    made: Json = {"count": 1} if "opcode" in operation else {}
    for key, value in operation.items():
        if key.endswith("Param"):
            made[key.removesuffix("Param")] = params[value.removeprefix("$")]
        else:
            made[key] = _with_numbers(value, params) if key == "createPodsOp" else value
    return made


def _pods_of(operation: Json) -> int:
    if operation["opcode"] == "createPodSets":
        return int(operation["count"] * operation["createPodsOp"]["count"])
    return int(operation["count"]) if operation["opcode"] == "createPods" else 0
