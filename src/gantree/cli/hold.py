"""`gantree hold`: keep jobs that wait from being started."""

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def hold(
    jobs: JobsArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep waiting jobs from being started.

    They stay where they are in the queue, until `gantree release` lets them go.
    """
    ask_each(jobs, client(state).hold, "held", as_json=as_json)
