"""acting: what leaving nodes and links on signs avoids of what an oracle avoids, on 16,384 GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.events import CordonRequested
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import (
    Bench,
    Outcome,
    Table,
    Verdict,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import cluster, figures, models
from gantree.sim.run import Simulation
from gantree.sim.running.model import (
    DAY_S,
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Stragglers,
)
from gantree.sim.running.stragglers import SlowOnes
from gantree.sim.workload import job_of

SITE, MODEL, GPUS_OF_NODE = "dgx-h100-2048", "llama-7b", 8
NODES_OF_JOB = (256, 64, 32, 8, 1)
FAILURES, LINKS, SLOW, ALL = "failures of nodes", "degraded links", "slow nodes", "all together"
CAUSES = (FAILURES, LINKS, SLOW, ALL)
STAYS, ORACLE = "stays", "oracle"
Arm = tuple[str, str | float]
"""What goes wrong, and who acts."""
NEEDED = 0.7
"""Share of what the oracle avoids."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what goes wrong, who acts ("stays": nobody, "oracle", or the share of failures with a sign), a seed."""

    cause: str
    acts: str | float
    seed: int


@dataclass(frozen=True, slots=True)
class Ran:
    """The share of the time of its GPUs that jobs worked, and the moves by which they left a place.

    unplanted: those of them without a planted fault, on flaps of links alone.
    """

    ettr: float
    moves: int
    unplanted: int


def shares() -> tuple[float, ...]:
    """Return the shares of failures with a sign: the ends of the range and the likeliest."""
    announced = figures("acting")["announced"]
    return announced.low, announced.value, announced.high


def running(case: Case) -> RunningModel:
    """Return the model of running of a case."""
    given = {name: each.value for name, each in figures("acting").items()}
    node = link = slow = None
    if case.cause in (FAILURES, ALL):
        is_oracle = case.acts == ORACLE
        announced = 1.0 if is_oracle else 0.0 if isinstance(case.acts, str) else case.acts
        lead_s = given["oracle_warns_s"] if is_oracle else given["lead_min"] * 60
        rate, repair_s = given["node_failures_per_day"], given["repair_h"] * 3600
        node = FailureRate(rate, repair_s, announced=announced, lead_s=lead_s)
    links = [("node", FailureRate(given["flaps_per_day"], given["flap_s"], given["leaf_health"]))]
    if case.cause in (LINKS, ALL):
        repair_s = given["leaf_repair_h"] * 3600
        link = FailureRate(given["leaf_degradations_per_day"], repair_s, given["leaf_health"])
        links.append(("leaf", link))
    if case.cause in (SLOW, ALL):
        named_s = given["named_after_min"] * 60
        slow = Stragglers(given["slow_nodes"], speed=given["slow_speed"], named_after_s=named_s)
    return RunningModel(
        step_time=True,
        checkpoints=Checkpoints(save_s=given["save_s"]),
        failures=Failures(node=node, links=tuple(links)),
        stragglers=slow,
    )


def policy(acts: str | float) -> Policy:
    """Return the preset `gantree` that leaves nothing, or all; the oracle knows that what is degraded stays so."""
    base = PRESETS["gantree"]
    leaves = acts != STAYS
    restart_s = 0.0 if acts == ORACLE else figures("acting")["restart_min"].value * 60
    return replace(base, restart_s=restart_s, leave_unwell=leaves, leave_degraded=leaves)


def rows() -> list[TraceJob]:
    """Return the jobs: all run from the beginning to the end."""
    given = figures("acting")
    every_s = given["checkpoint_min"].value * 60
    found = []
    for nodes in NODES_OF_JOB:
        name = f"jobs_of_{nodes}_node{'s' if nodes > 1 else ''}"
        for number in range(int(given[name].value)):
            job = f"{nodes}-{number}"
            found.append(TraceJob(job, 0.0, 1e9, nodes, GPUS_OF_NODE, checkpoint_s=every_s))
    return found


def run_case(case: Case) -> Ran:
    """Run the jobs for some days and count the work that they have done."""
    model, jobs, site = running(case), rows(), cluster(SITE)
    start_s = figures("acting")["restart_min"].value * 60
    simulation = Simulation(
        site, jobs, policy(case.acts), Overheads(start_s), _trained, running=model, seed=case.seed
    )
    if case.acts == ORACLE and model.stragglers is not None:
        for node in SlowOnes(model.stragglers, case.seed).slow_nodes(
            each.name for each in site.nodes
        ):
            event = CordonRequested(id=f"oracle/{node}", observed_at=0.0, node=node)
            simulation.foretell(event)
    end_s = figures("acting")["days"].value * DAY_S
    while simulation.now < end_s and simulation.step():
        pass
    left = [
        stop.flees for stops in simulation.record.stops.values() for stop in stops if stop.flees
    ]
    of_flaps = sum(each.startswith("node ") and ": " not in each for each in left)
    return Ran(_ettr(simulation, jobs, end_s), len(left), of_flaps)


def _ettr(simulation: Simulation, jobs: Sequence[TraceJob], end_s: float) -> float:
    """The share of the time of all GPUs in which their jobs worked, saved or not, and did not do it again."""
    worked = 0.0
    for row in jobs:
        work = simulation.cluster.work_of_job[f"t{row.job_id}"]
        done_s = work.kept_s if work.attempt is None else work.attempt.work_done_s(end_s)
        worked += done_s * row.members
    return worked / (end_s * sum(row.members for row in jobs))


def _trained(row: TraceJob) -> Job:
    return models()[MODEL].trained_by(job_of(row))


def run(bench: Bench) -> Outcome:
    """Run each cause of loss with nobody who acts, with gantree by shares of signs, and with the oracle."""
    arms: list[Arm] = []
    for cause in CAUSES:
        arms += [(cause, STAYS), *((cause, share) for share in _acting(cause)), (cause, ORACLE)]
    cases = [Case(*arm, seed) for arm in arms for seed in bench.seeds]
    found: dict[Arm, list[Ran]] = {arm: [] for arm in arms}
    for case, each in zip(cases, bench.workers.map(run_case, cases), strict=True):
        found[case.cause, case.acts].append(each)
    ettr = {arm: mean([each.ettr for each in ran]) for arm, ran in found.items()}
    usual = figures("acting")["announced"].value
    acted = [
        each for (_, acts), ran in found.items() if acts not in (STAYS, ORACLE) for each in ran
    ]
    unplanted = (
        100 * sum(each.unplanted for each in acted) / max(1, sum(each.moves for each in acted))
    )
    return Outcome(
        verdicts=(
            *(_verdict(cause, ettr, usual) for cause in CAUSES),
            at_most("of the moves, those without a planted fault", unplanted, 1, " %"),
        ),
        tables=(_table(ettr, found),),
    )


def _acting(cause: str) -> tuple[float, ...]:
    """The shares of failures with a sign that are compared: signs matter to failures alone."""
    return shares() if cause in (FAILURES, ALL) else shares()[:1]


def avoided(ettr: Mapping[Arm, float], cause: str, acts: str | float) -> float:
    """Return the share of what the oracle avoids that is avoided."""
    stays, oracle = ettr[cause, STAYS], ettr[cause, ORACLE]
    return (ettr[cause, acts] - stays) / (oracle - stays)


def _verdict(cause: str, ettr: Mapping[Arm, float], usual: float) -> Verdict:
    acts = usual if usual in _acting(cause) else 0.0
    signs = f", {100 * acts:.0f} % of failures with a sign" if cause in (FAILURES, ALL) else ""
    return at_least(
        f"{100 * NEEDED:.0f} % of the loss that an oracle avoids is avoided: {cause}{signs}",
        100 * avoided(ettr, cause, acts),
        100 * NEEDED,
        " %",
        "a failure without a sign is not avoided, and its share is not published",
    )


def _table(
    ettr: Mapping[Arm, float],
    found: Mapping[Arm, Sequence[Ran]],
) -> Table:
    rows = tuple(
        (
            cause,
            acts
            if isinstance(acts, str)
            else f"gantree, {100 * acts:.0f} % of failures with a sign",
            mean([each.moves for each in ran]),
            100 * ettr[cause, acts],
            100 * avoided(ettr, cause, acts),
        )
        for (cause, acts), ran in found.items()
    )
    head = ("what goes wrong", "who acts", "moves", "ETTR %", "of the oracle's %")
    return Table("16,384 GPUs for three days: means over seeds", head, rows)
