"""The commands of `gantree trace`."""

from gantree.cli.options import new_app
from gantree.cli.traces.change import scale, slice_
from gantree.cli.traces.describe import describe
from gantree.cli.traces.importing import import_
from gantree.cli.traces.synthesize import synthesize

app = new_app(no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Describe, import, cut, scale and synthesize traces of jobs."""


app.command("describe")(describe)
app.command("import")(import_)
app.command("slice")(slice_)
app.command("scale")(scale)
app.command("synthesize")(synthesize)
