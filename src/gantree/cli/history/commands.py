"""The commands of `gantree history`."""

from gantree.cli.history.ended_jobs import ended_jobs
from gantree.cli.options import new_app

app = new_app(no_args_is_help=True)


@app.callback()
def history() -> None:
    """Search ended jobs, however long ago they ended."""


app.command("jobs")(ended_jobs)
