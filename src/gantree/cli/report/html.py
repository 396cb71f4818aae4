"""A report as one HTML file, which loads nothing and prints on A4 with numbered pages."""

from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from gantree.cli.report.document import Report


def html_of(report: Report) -> str:
    """The file's text."""
    jinja = Environment(
        loader=PackageLoader("gantree.cli.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = datetime.fromtimestamp(report.made_at, UTC)
    return jinja.get_template("report.html").render(
        report=report, made=f"{made:%Y-%m-%d %H:%M} UTC"
    )
