"""published: Muri's and Pollux' tables and a case of ASTRA-sim, and gantree on the same work under the same rules."""

from pathlib import Path

from gantree.sim.experiments.experiment import Bench, Judgement, Outcome, Verdict
from gantree.sim.experiments.published import contention, muri, pollux

DATA = "data"
"""The option that names the directory of artifacts that are not carried."""

SIA = Verdict(
    "Sia's table: gantree no worse than its rigid baselines",
    "not replayed",
    Judgement.OPEN,
    "they solve linear programs or need a commercial solver, so that its rules are met could not be shown",
)


def run(bench: Bench) -> Outcome:
    """Run Muri's jobs, and Pollux' where a directory is named. Raises NotFound and BadInput for a wrong one."""
    of_pollux = None
    if DATA in bench.options:
        of_pollux = pollux.runs(bench, Path(bench.options[DATA]))
    return outcome(muri.rows_of_rules(bench), of_pollux)


def outcome(of_muri: muri.RowsOfRule, of_pollux: pollux.Runs | None) -> Outcome:
    """Everything that was found; of_pollux is None where no directory was named."""
    shared = contention.cases()
    return Outcome(
        verdicts=(
            *muri.verdicts(of_muri),
            *(pollux.verdicts(of_pollux) if of_pollux is not None else (pollux.NOT_RUN,)),
            SIA,
            contention.verdict(shared),
        ),
        tables=(
            *muri.tables(of_muri),
            *(pollux.tables(of_pollux) if of_pollux is not None else ()),
            contention.table(shared),
        ),
    )
