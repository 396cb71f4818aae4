"""The commands of `gantree history`."""

from gantree.cli.history.ended_jobs import ended_jobs
from gantree.cli.history.node_signs import node_signs
from gantree.cli.history.over_time import preemptions, queues, use, waits
from gantree.cli.options import new_app

app = new_app(no_args_is_help=True)


@app.callback()
def history() -> None:
    """Show ended jobs, use, waits, preemptions and signs of nodes over time."""


app.command("jobs")(ended_jobs)
app.command("use")(use)
app.command("queues")(queues)
app.command("waits")(waits)
app.command("preemptions")(preemptions)
app.command("nodes")(node_signs)
