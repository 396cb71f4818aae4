"""`gantree what-if`: placements if nodes were out of use, jobs had ended, or a gang had another size.

With one word it is about a job of the daemon, and `cli.what_if_live` answers. What follows is about files.

Offline, like `gantree place`: files in, an answer out, nothing is started. One trial is as things are, one with all
that is to be otherwise, then one for each size that is asked. Each starts from the cluster file anew; in each the jobs
are placed in the order of the command line and hold their place for the ones after them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from gantree.cli.explain import what_if_job as live
from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.policies import policy_on
from gantree.cli.options import JsonOption, PolicyOption, StateOption, new_app
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import progress
from gantree.cli.placement.document import placement_json
from gantree.cli.placement.lines import placement_lines
from gantree.cli.placement.placer import Placer, Trials
from gantree.formats import read_cluster, read_job
from gantree.formats.refusals import refusal_json
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.resize.elastic import resized
from gantree.text.hostlists import BadHostlist, count_nodes, expand, folded
from gantree.text.words import did_you_mean, plural
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import OWNER_PREFIX

app = new_app()

SOME_REFUSED = 3

WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="NODES", help="Assume that these nodes are down: n7, n[0-3]."
    ),
]
EndedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ended", metavar="JOB", help="Assume that this job of the cluster file has ended."
    ),
]
MembersOption = Annotated[
    list[int] | None,
    typer.Option("--with-members", metavar="N", min=1, help="Give jobs of one role N members."),
]


@dataclass(frozen=True, slots=True)
class Trial:
    """What was otherwise (members: None for as the files say), and what then became of each job.

    holders are (node, job) of those who hold something of a node that was taken out of use. notes are sentences about
    jobs whose size is not what was asked for, or not what their file allows.
    """

    without: tuple[str, ...]
    ended: tuple[str, ...]
    members: int | None
    holders: tuple[tuple[str, str], ...]
    verdicts: tuple[tuple[Job, Placement | Refused], ...]
    notes: tuple[str, ...] = ()

    @property
    def all_placed(self) -> bool:
        """Whether every job has a place."""
        return all(isinstance(verdict, Placement) for _, verdict in self.verdicts)


@app.command("what-if")
def what_if(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB | CLUSTER FILE...",
            help='A job of the daemon, or a cluster file and job files; "-" is stdin.',
        ),
    ],
    without: WithoutOption = None,
    ended: EndedOption = None,
    with_members: MembersOption = None,
    policy: PolicyOption = None,
    relax: live.RelaxOption = None,
    members: live.SizeOption = None,
    gpu: live.GpuOption = None,
    priority: live.PriorityOption = None,
    time_limit: live.TimeLimitOption = None,
    queue: live.QueueOption = None,
    together: live.TogetherOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where or when jobs would start under other conditions.

    Exit status: 0 all jobs are placed in every trial, or the job would start at once in some alternative; 3 some job is
    not placed, or would start at once in no alternative; 2 bad input.
    """
    changes = live.changes_of(relax, members, gpu, priority, time_limit, queue, together=together)
    if len(words) == 1:
        if without or ended or with_members or policy is not None:
            raise BadInput(
                "--without, --ended, --with-members and --policy: found with one word, which is a job of the daemon; "
                "allowed: with a cluster file and job files"
            )
        live.answer(words[0], changes, state, as_json=as_json)
        return
    if changes:
        raise BadInput(
            "--relax, --members, --gpu, --priority, --time-limit and --queue: found with files; allowed: with one job "
            "of the daemon (for files: --with-members, or change the file)"
        )
    _from_files(words[0], words[1:], without, ended, with_members, policy, as_json=as_json)


def _from_files(
    cluster: str,
    jobs: Sequence[str],
    without: Sequence[str] | None,
    ended: Sequence[str] | None,
    with_members: Sequence[int] | None,
    policy: str | None,
    *,
    as_json: bool,
) -> None:
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    jobs_to_place = [job for file in jobs for job in read_job(read_text(file), source_of(file))]
    occupancy = Occupancy(fabric)
    holders = dict.fromkeys(owner.removeprefix(OWNER_PREFIX) for owner in occupancy.owners)
    if with_members and all(len(job.roles) > 1 for job in jobs_to_place):
        raise BadInput("--with-members: every job has several roles; allowed: jobs of one role")
    out = [node for word in without or () for node in _nodes(word)]
    nodes = _known("--without", "a node of the cluster", out, fabric.index_of_node)
    gone = _known("--ended", "a job with allocations in the cluster file", ended or (), holders)
    trials = Trials(occupancy, Placer(policy_on(policy, fabric)))
    found = _in_turn(trials, jobs_to_place, nodes, gone, with_members or ())
    if as_json:
        print_json({"trials": [_json(trial) for trial in found]})
    else:
        typer.echo("\n".join(line for trial in found for line in _lines(trial)))
    if not all(trial.all_placed for trial in found[1:] or found):
        raise typer.Exit(SOME_REFUSED)


def _nodes(word: str) -> list[str]:
    try:
        count_nodes(word)
    except BadHostlist as error:
        raise BadInput(f"--without: found {word!r}; allowed: {error}") from None
    return expand(word)


def _known(
    option: str, what: str, words: Sequence[str], known: Mapping[str, object]
) -> tuple[str, ...]:
    """The words of an option, each once. Raises BadInput for one that is not known."""
    for word in words:
        if word not in known:
            hint = did_you_mean(word, list(known)[:1000])
            raise BadInput(f"{option}: found `{word}`; allowed: {what}. {hint}".rstrip())
    return tuple(dict.fromkeys(words))


def _in_turn(
    trials: Trials,
    jobs: Sequence[Job],
    nodes: Sequence[str],
    ended: Sequence[str],
    sizes: Sequence[int],
) -> list[Trial]:
    """As it is, with what is otherwise, and with each of the sizes beside."""
    found: list[Trial] = []
    total = 1 + bool(nodes or ended) + len(sizes)
    with progress("Trying") as advance:
        with trials.branch():
            found.append(_trial(trials, jobs, (), (), None))
        for members in (*([None] if nodes or ended else []), *sizes):
            advance(len(found), total)
            with trials.branch():
                found.append(_trial(trials, jobs, nodes, ended, members))
    return found


def _trial(
    trials: Trials,
    jobs: Sequence[Job],
    nodes: Sequence[str],
    ended: Sequence[str],
    members: int | None,
) -> Trial:
    for holder in ended:
        trials.give_back(OWNER_PREFIX + holder)
    holders = tuple(
        (node, owner.removeprefix(OWNER_PREFIX)) for node in nodes for owner in trials.without(node)
    )
    jobs_to_place = jobs if members is None else [_of_size(job, members) for job in jobs]
    verdicts = trials.place_all(jobs_to_place)
    notes = () if members is None else tuple(_size_notes(jobs, members))
    placed = tuple(zip(jobs_to_place, verdicts, strict=True))
    return Trial(tuple(nodes), tuple(ended), members, holders, placed, notes)


def _of_size(job: Job, members: int) -> Job:
    """The job with exactly so many members; those of several roles stay as they are."""
    return replace(resized(job, members), elastic=None) if len(job.roles) == 1 else job


def _size_notes(jobs: Sequence[Job], members: int) -> Iterator[str]:
    for job in jobs:
        if len(job.roles) > 1:
            yield f"{job.name} has several roles, so --with-members does not change it"
        elif job.elastic and not job.elastic.min <= members <= job.elastic.max:
            allowed = f"elastic, {job.elastic.min} to {job.elastic.max}"
            yield f"{job.name} would never get {plural(members, 'member')}: its file says {allowed}"


# ----- how it is told


def _json(trial: Trial) -> dict[str, Any]:
    return {
        "without": list(trial.without),
        "ended": list(trial.ended),
        "members": trial.members,
        "holders": [{"node": node, "job": job} for node, job in trial.holders],
        "notes": list(trial.notes),
        "placements": [_verdict_json(job, verdict) for job, verdict in trial.verdicts],
    }


def _verdict_json(job: Job, verdict: Placement | Refused) -> dict[str, Any]:
    if isinstance(verdict, Placement):
        return placement_json(job, verdict)
    return {"job": job.name, "placed": False, "why": refusal_json(verdict)}


def _lines(trial: Trial) -> Iterator[str]:
    """The conditions of the trial, the affected holders, then a line for each job."""
    otherwise = [f"without {folded(trial.without)}"] if trial.without else []
    otherwise += [f"{ended} ended" for ended in trial.ended]
    otherwise += [f"with {plural(trial.members, 'member')}"] if trial.members else []
    yield f"{', '.join(otherwise) or 'as it is'}:"
    for node, holder in trial.holders:
        yield f"  {holder} has resources on {node}"
    yield from (f"  {note}" for note in trial.notes)
    for job, verdict in trial.verdicts:
        if isinstance(verdict, Placement):
            yield f"  {next(placement_lines(job, verdict, {}))}{_time(verdict)}"
        else:
            yield f"  {job.name}: not placed. {verdict.sentence}"


def _time(placement: Placement) -> str:
    predicted = placement.predicted
    if predicted.step_s is not None:
        return f", a step in {predicted.step_s:.3g} s"
    return f", 1 GiB all-reduced in {predicted.comm_s * 1e3:.3g} ms" if predicted.comm_s else ""
