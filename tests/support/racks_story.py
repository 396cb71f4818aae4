"""examples/racks as GangJobs on an API server: what came when, who waits how long, and who was stopped for whom.

    with RacksStage(tmp_path, "counts") as stage:
        for gang in stage.play():
            print(gang)

Jobs come in the order of the example's trace, without its times: the next ones come once gantree has nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Decision
from gantree.formats import read_cluster, read_trace
from gantree.formats.policy.reader import read_policy
from gantree.formats.traces import TraceJob
from gantree.model.events import Event
from gantree.model.facts import GangMoving, GangPreempted
from gantree.model.phases import ENDED, Phase
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/racks"
CRD = ROOT / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
PRODUCT, GPUS = "NVIDIA-GB200", 4
SECOND_WAVE_S, THIRD_WAVE_S = 1600.0, 3600.0
"""When the short jobs of the trace have ended and others take their room; when the gangs of 16 pods begin to come."""


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang in the end. waited_s: until it ran for the first time, None if it never did; why: why it waits."""

    name: str
    racks: tuple[str, ...]
    waited_s: float | None
    stopped_for: str
    why: str


class RacksStage(PodStage):
    """The cluster of the example under one of its policies."""

    def __init__(self, state_dir: Path, policy: str) -> None:
        path = EXAMPLE / f"policy-{policy}.yaml"
        super().__init__(state_dir, read_policy(path.read_text(), path.name))
        self._stopped_for: dict[str, str] = {}

    def play(self) -> list[Gang]:
        """Act out the trace; give its gangs in its order."""
        self._join()
        self.start()
        self._listen()
        rows = read_trace(EXAMPLE / "jobs.csv")
        first = [row for row in rows if row.submit_s < SECOND_WAVE_S]
        second = [row for row in rows if SECOND_WAVE_S <= row.submit_s < THIRD_WAVE_S]
        self._submit(first)
        self._end([row for row in first if row.duration_s < SECOND_WAVE_S])
        self._submit(second)
        for row in rows[len(first) + len(second) :]:
            self._submit([row])
        self.until(self._are_told)
        return [self._gang(row) for row in rows]

    def _join(self) -> None:
        """The trays that are not broken join."""
        site = read_cluster((EXAMPLE / "cluster.yaml").read_text(), "cluster.yaml")
        broken = {each.name for each in site.domains if each.health == 0}
        for node in site.nodes:
            if node.name not in broken:
                self.nodes(node.name, GPUS, PRODUCT, nvidia_com__gpu_clique=node.at[0])
        self.api.define(read_yaml(CRD.read_text()))

    def _listen(self) -> None:
        """Note who is stopped for whom from now on."""
        scheduler = self.controller.turn_runner.scheduler
        handle = scheduler.handle

        def noted(events: Sequence[Event]) -> Decision:
            decision = handle(events)
            for fact in decision.facts:
                if isinstance(fact, GangPreempted | GangMoving):
                    spec = self.controller.ledger.jobs[fact.by].spec.name if fact.by else ""
                    self._stopped_for[fact.job] = f"{fact.cause} {spec}"
            return decision

        scheduler.handle = noted  # type: ignore[method-assign]  # listened to from outside

    def _submit(self, rows: Sequence[TraceJob]) -> None:
        """Create GangJobs; wait until every gang that there is runs or can do nothing but wait."""
        for row in rows:
            answer = self.api.post(URL, gang_job(row))
            assert answer.status_code == 201, answer.text
        names = {row.job_id for row in rows}
        self.until(lambda: names <= self._jobs().keys() and self._is_quiet())

    def _end(self, rows: Sequence[TraceJob]) -> None:
        for row in rows:
            for member in range(row.members):
                self.exit(f"{row.job_id}-worker-{member}")
        self.until(lambda: all(self._jobs()[row.job_id].phase in ENDED for row in rows))

    def _is_quiet(self) -> bool:
        ledger = self.controller.ledger
        calm = (Phase.RUNNING, Phase.PENDING, *ENDED)
        return not ledger.claims and all(
            each.phase in calm and not each.leaving and each.moving is None
            for each in ledger.jobs.values()
        )

    def _are_told(self) -> bool:
        """Whether all gangs that wait have their pods, and a reason."""
        waiting = [
            each["status"]
            for each in self.gang_jobs().values()
            if each["status"]["phase"] == "Pending"
        ]
        return all("pods" not in each.get("message", "pods") for each in waiting)

    def gang_jobs(self) -> dict[str, Json]:
        """All GangJobs by name."""
        found = self.api.get(URL).json()["items"]
        return {each["metadata"]["name"]: each for each in found}

    def _jobs(self) -> dict[str, JobState]:
        """The job of each GangJob by its name."""
        jobs = self.controller.ledger.jobs
        job_of = {
            name: each.get("status", {}).get("job") for name, each in self.gang_jobs().items()
        }
        return {name: jobs[job] for name, job in job_of.items() if job in jobs}

    def _gang(self, row: TraceJob) -> Gang:
        state = self._jobs()[row.job_id]
        placement, started = state.placement, state.started_at
        racks = {node.partition("-")[0] for node in placement.nodes} if placement else set()
        status = self.gang_jobs()[row.job_id]["status"]
        return Gang(
            row.job_id,
            tuple(sorted(racks)),
            None if started is None else started - state.submitted_at,
            self._stopped_for.get(state.job, ""),
            str(status.get("message") or ""),
        )


def gang_job(row: TraceJob) -> Json:
    """A row of the trace as a GangJob."""
    container = {"name": "train", "image": "train:1"}
    role = {
        "role": "worker",
        "members": row.members,
        "each": {"gpus": row.gpus_per_member},
        "template": {"spec": {"containers": [container]}},
    }
    topology: Json = {"required": row.required} if row.required else {}
    if row.slice_members:
        topology["slices"] = {"members": row.slice_members, "required": row.slice_required}
    return {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": row.job_id},
        "spec": {
            "queue": row.queue,
            "priority": row.priority,
            "gang": [role],
            "topology": topology,
        },
    }
