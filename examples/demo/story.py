"""The story that the demo acts out, with real processes, and what must be true of it at the end.

Two leaves of two virtual DGX H100 nodes. A fleet that nobody may stop takes one leaf. A training gang of 16
processes takes the other, trains and checkpoints. An urgent gang of eight needs a node: training is asked to save,
stops, the urgent gang runs and ends, training resumes from its checkpoint and finishes.

`tell` plays it against a daemon that may be killed and started again at any moment; `verdict` lists what went wrong.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gantree import Client
from gantree.model.errors import Unreachable

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent
CLUSTER = EXAMPLES / "four-dgx.yaml"
TRAINING = HERE / "training.yaml"
FILLER, URGENT = HERE / "filler.yaml", HERE / "urgent.yaml"
CHECKPOINT_EVERY = 20
"""Steps between the checkpoints that training takes by itself; as in training.yaml."""
STEPS = 120
"""Steps that training takes in all; as in training.yaml."""
URGENT_WITHIN_S = 10.0
"""How soon the urgent gang must run: a checkpoint, a stop and a start."""
PROCESSES = 8
"""Of each member of training, and of the urgent gang; as in their files."""
PATIENCE_S = 120.0
Json = dict[str, Any]
Answer = TypeVar("Answer")


@dataclass
class Told:
    """What was seen while the story went on. Times are seconds since 1970.

    disturbed: somebody killed the daemon meanwhile, so how long things took says nothing. processes: of each member
    of training, and of the urgent gang.
    """

    facts: list[Json] = field(default_factory=list)
    jobs: dict[str, Json] = field(default_factory=dict)
    urgent_submitted_at: float = 0.0
    disturbed: bool = False
    processes: int = PROCESSES


def tell(client: Client, say: Callable[[str], None], processes: int = PROCESSES) -> Told:
    """Play the story to its end; raises TimeoutError where it gets stuck. With fewer processes it is soon over."""
    told = Told(processes=processes)
    say("a fleet that nobody may stop takes one leaf; training takes the other")
    submit(client, FILLER, processes)
    until(client, "serving-fleet", lambda job: job["phase"] == "running")
    submit(client, TRAINING, processes)
    until(client, "training", lambda job: (job["checkpoint_step"] or 0) >= CHECKPOINT_EVERY)
    say("training has checkpointed; an urgent gang of 8 GPUs comes while all 32 are taken")
    told.urgent_submitted_at = time.time()
    submit(client, URGENT, processes)
    until(client, "urgent-inference", ended)
    say("the urgent gang is done; training resumes")
    until(client, "training", ended)
    patiently(lambda: client.cancel("serving-fleet"))
    until(client, "serving-fleet", ended)
    told.facts = patiently(lambda: list(client.facts()))
    for name in ("serving-fleet", "training", "urgent-inference"):
        told.jobs[name] = patiently(partial(client.job, name))
    return told


def submit(client: Client, path: Path, processes: int) -> None:
    """Hand in a job once, also where the daemon dies before its answer arrives."""
    text = path.read_text().replace("@STATE@", str(client.state_dir))
    text = text.replace(f"processes: {PROCESSES}", f"processes: {processes}")
    name = text.split("name: ", 1)[1].split("\n", 1)[0]

    def once() -> None:
        if name not in {job["name"] for job in client.jobs()}:
            client.submit(text, path.name, base_dir=str(HERE))

    patiently(once)


def until(client: Client, job: str, holds: Callable[[Json], bool]) -> None:
    """Wait until something is true of a job."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(state := patiently(lambda: client.job(job))):
        if time.monotonic() > deadline:
            why = patiently(lambda: client.why(job))["sentence"]
            raise TimeoutError(f"{job} is {state['phase']} for too long. {why}")
        time.sleep(0.05)


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while no daemon answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def ended(job: Json) -> bool:
    """Whether a job is over."""
    return job["ended_at"] is not None


def facts_of(told: Told, kind: str, job: str) -> list[Json]:
    """The facts of one kind about one job, in order."""
    return [fact for fact in told.facts if fact["fact"] == kind and fact["data"].get("job") == job]


def verdict(told: Told, runs: Path) -> list[str]:
    """Everything that did not happen as the story says; empty if all did."""
    checks = (_outcomes, _one_leaf, _asked_and_answered, _urgent_at_once, _resumed, _nothing_twice)
    return [problem for check in checks for problem in check(told, runs)]


def _outcomes(told: Told, runs: Path) -> Iterator[str]:
    wanted = {
        "serving-fleet": "cancelled",
        "training": "succeeded",
        "urgent-inference": "succeeded",
    }
    for name, phase in wanted.items():
        if told.jobs[name]["phase"] != phase:
            yield f"{name} {told.jobs[name]['phase']} instead of {phase}: {told.jobs[name]['reason']}"


def _one_leaf(told: Told, runs: Path) -> Iterator[str]:
    for fact in facts_of(told, "GangPlaced", "training"):
        members = fact["data"]["placement"]["members"]
        nodes = sorted(member["node"] for member in members)
        if nodes not in (["n0", "n1"], ["n2", "n3"]):
            yield f"training was placed on {nodes}, which are not the two nodes of one leaf"
        if sorted(len(member["gpus"]) for member in members) != [8, 8]:
            yield f"training does not hold 8 GPUs on each node: {members}"


def _asked_and_answered(told: Told, runs: Path) -> Iterator[str]:
    asked = facts_of(told, "CheckpointRequested", "training")
    answered = [
        fact["data"]["request"]
        for fact in facts_of(told, "CheckpointRecorded", "training")
        if fact["data"]["request"]
    ]
    if [fact["data"]["request"] for fact in asked] != answered or not asked:
        yield f"training was asked for {len(asked)} checkpoints and answered {answered}"
    if facts_of(told, "CheckpointRequested", "serving-fleet"):
        yield "the fleet was asked to save, though it declared no checkpoint"


def _urgent_at_once(told: Told, runs: Path) -> Iterator[str]:
    if not facts_of(told, "GangRunning", "urgent-inference"):
        yield "the urgent gang never ran"
    elif not told.disturbed and (waited_s := urgent_waited_s(told)) > URGENT_WITHIN_S:
        yield f"the urgent gang waited {waited_s:.1f} s, more than {URGENT_WITHIN_S:g} s"
    answers = [log.read_text() for log in sorted((runs / "urgent-inference").glob("*/log/*.log"))]
    if len(answers) != told.processes or any(text.count("answers") != 1 for text in answers):
        yield f"the urgent gang did not run its {told.processes} processes once each: {answers}"


def _resumed(told: Told, runs: Path) -> Iterator[str]:
    attempts = told.jobs["training"]["attempt"]
    if attempts != 2:
        yield f"training took {attempts} attempts instead of 2"
    if "resumed from step" not in rank_0(runs, attempts).read_text():
        yield "training did not resume from its checkpoint"
    lost = steps_lost(runs, attempts)
    if lost > CHECKPOINT_EVERY:
        yield f"{lost} steps were lost, more than one checkpoint interval ({CHECKPOINT_EVERY})"
    done = [read_steps(rank_0(runs, attempt)) for attempt in range(1, attempts + 1)]
    if list(itertools.chain(*done))[-1:] != [STEPS]:  # its last attempt may find nothing to do
        yield f"training ended before step {STEPS}"


def _nothing_twice(told: Told, runs: Path) -> Iterator[str]:
    for attempt in range(1, told.jobs["training"]["attempt"] + 1):
        steps = read_steps(rank_0(runs, attempt))
        if steps != list(range(steps[0], steps[-1] + 1)) if steps else False:
            yield f"attempt {attempt} of training did not do each step once: {steps}"
    for name in told.jobs:
        placed = [fact["data"]["attempt"] for fact in facts_of(told, "GangPlaced", name)]
        if placed != list(range(1, len(placed) + 1)):
            yield f"{name} was placed for the attempts {placed}"


def urgent_waited_s(told: Told) -> float:
    """Seconds from the submission of the urgent gang to its start."""
    (running,) = facts_of(told, "GangRunning", "urgent-inference")
    return float(running["at"]) - told.urgent_submitted_at


def rank_0(runs: Path, attempt: int) -> Path:
    """What rank 0 of training printed in an attempt."""
    return runs / "training" / str(attempt) / "log" / "rank-0.log"


def read_steps(log: Path) -> list[int]:
    """The steps that a rank printed, in order."""
    return [int(step) for step in re.findall(r"^step (\d+) ", log.read_text(), re.MULTILINE)]


def steps_lost(runs: Path, attempts: int) -> int:
    """Steps that training did twice, over all its attempts."""
    done = [read_steps(rank_0(runs, attempt)) for attempt in range(1, attempts + 1)]
    return sum(
        max(0, before[-1] - after[0] + 1)
        for before, after in itertools.pairwise(done)
        if before and after
    )
