"""`gantree suspend`: stop jobs and keep them from being started."""

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def suspend(
    jobs: JobsArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop jobs and keep them from being started until they are resumed.

    A job that runs saves if it can, gives its GPUs back and keeps its place in the queue; one that waits is held.
    """
    ask_each(jobs, client(state).suspend, "suspended", as_json=as_json)
