"""`gantree release`: let jobs go that were held by hand."""

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def release(
    jobs: JobsArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let held jobs go."""
    ask_each(jobs, client(state).release, "released", as_json=as_json)
