"""`gantree resume`: let suspended jobs go on; the same as `gantree release`."""

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def resume(
    jobs: JobsArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let suspended jobs go on."""
    ask_each(jobs, client(state).resume, "resumed", as_json=as_json)
