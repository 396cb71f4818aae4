"""`gantree replay`: what another policy would have done with the jobs that a daemon recorded."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.input.policies import policy_on
from gantree.cli.input.recordings import recording_in
from gantree.cli.options import PRESETS, JsonOption, shallow
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import busy, progress
from gantree.cli.simulation.replay_lines import replay_lines
from gantree.formats import read_policy
from gantree.formats.policy.reader import PRESET_NAMES, preset
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.sim.inputs import name_of
from gantree.sim.replay import files
from gantree.sim.replay.comparison import Comparison
from gantree.sim.replay.files import RECORDED
from gantree.sim.replay.fit import check_suits
from gantree.sim.replay.recording import Recording
from gantree.sim.replay.replaying import Replayed
from gantree.sim.replay.replaying import replay as replay_under


def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="JOURNAL|SNAPSHOT",
            help="State directory of a daemon (it may run), copy of a journal, PostgreSQL URL, or directory of"
            " gantree kubernetes snapshot.",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="NAME|FILE", help=f"Preset ({', '.join(PRESETS)}) or policy file."
        ),
    ],
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Jobs submitted since: a date, or how long ago (7d)."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Jobs submitted until: as --since.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Output directory for replay.json, jobs.csv and reports."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate the recorded jobs of a daemon under another policy.

    The recorded policy is simulated, too: how far that is from the record tells how sure the comparison is.
    """
    if out is not None:
        shallow(out, "--out")
    with busy("Reading"):
        recording = recording_in(source, since, until)
    comparison = _compared(recording, policy)
    if out is not None:
        files.write(comparison, out)
    document = comparison.document()
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(replay_lines(comparison, document, out)))


def _compared(recording: Recording, named: str) -> Comparison:
    chosen = policy_on(named, recording.site)
    check_suits(chosen, recording, f"--policy {named}")
    was = _recorded_policy(recording)
    before = None if was is None else _simulated_as_recorded(recording, was)
    with progress("Simulating the policy") as advance:
        after = replay_under(recording, chosen, progress=advance, policy_name=name_of(named))
    return Comparison(recording, before, after)


def _simulated_as_recorded(recording: Recording, policy: Policy) -> Replayed | None:
    """None where the policy has cells that the site as first described cannot hold: nodes joined later."""
    try:
        with progress("Simulating the recorded policy") as advance:
            return replay_under(recording, policy, progress=advance, policy_name=RECORDED)
    except BadInput:
        return None


def _recorded_policy(recording: Recording) -> Policy | None:
    """The version that was adopted last; without one the default preset ruled. None for a snapshot, which has no past.

    None, too, for one that lacks queues of recorded jobs: it came after they had ended.
    """
    if not recording.policies:
        return preset(PRESET_NAMES[0]) if recording.measured.starts else None
    newest = recording.policies[-1]
    policy = read_policy(newest.text, newest.source)
    try:
        check_suits(policy, recording, f"policy {newest.source}, as recorded")
    except BadInput:
        return None
    return policy
