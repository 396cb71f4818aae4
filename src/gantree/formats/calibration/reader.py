"""calibration.yaml to and from a `Calibration`: written by `gantree topo measure`, read by the cost model."""

import json
from collections.abc import Iterator

from gantree.formats.calibration.form import CalibrationForm, RowForm
from gantree.formats.cluster.form import LinkForm
from gantree.formats.validation.forms import only_document, read_form, refuse
from gantree.model.cluster import Link
from gantree.model.errors import Problem
from gantree.text.document import read_documents
from gantree.text.words import plural
from gantree.topology.fabric.calibration import Calibration, MeasuredRow

MAX_CALIBRATION_FILE_BYTES = 4 * 1024 * 1024


def read_calibration(text: str, source: str) -> Calibration:
    """Read the text of a calibration file. Raises BadFields for all that is wrong, with file, line and field."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_CALIBRATION_FILE_BYTES)
    document = only_document(CalibrationForm, documents, problems)
    form = read_form(CalibrationForm, document, problems) if document else None
    problems += [
        row.problem("nodes", f"`{row.nodes}`", f"at most its {plural(row.ranks, 'rank')}")
        for row in (form.rows if form else ())
        if row.nodes > row.ranks and not {"nodes", "ranks"} & row.lost
    ]
    refuse(problems, source)
    assert form is not None
    measured = form.measured
    return Calibration(
        measured.backend,
        measured.host,
        measured.date,
        {name: _link(link) for name, link in form.links.items()},
        tuple(_row(row) for row in form.rows),
    )


def _link(form: LinkForm) -> Link:
    return Link(form.bandwidth_GBps, form.latency_us, form.uplink_GBps)


def _row(form: RowForm) -> MeasuredRow:
    return MeasuredRow(
        form.collective,
        form.ranks,
        form.nodes,
        form.bytes,
        form.time_s,
        form.busbw_GBps,
        form.within,
    )


def write_calibration(calibration: Calibration) -> str:
    """Return a calibration file; read back, it gives an equal calibration."""
    measured = {"backend": calibration.backend, "host": calibration.host, "date": calibration.date}
    lines = ["measured:", *(f"  {name}: {_word(word)}" for name, word in measured.items())]
    lines.append("links:" if calibration.links else "links: {}")
    lines += [f"  {_word(name)}: {_link_words(link)}" for name, link in calibration.links.items()]
    lines.append("rows:" if calibration.rows else "rows: []")
    lines += [f"  - {{{', '.join(_row_words(row))}}}" for row in calibration.rows]
    return "\n".join(lines) + "\n"


def _link_words(link: Link) -> str:
    uplink = "" if link.uplink_GBps is None else f", uplink_GBps: {_number(link.uplink_GBps)}"
    figures = (
        f"bandwidth_GBps: {_number(link.bandwidth_GBps)}, latency_us: {_number(link.latency_us)}"
    )
    return f"{{{figures}{uplink}}}"


def _row_words(row: MeasuredRow) -> Iterator[str]:
    yield f"collective: {row.collective}"
    yield f"ranks: {row.ranks}"
    yield f"nodes: {row.nodes}"
    yield f"bytes: {row.size_bytes}"
    yield f"time_s: {_number(row.time_s)}"
    yield f"busbw_GBps: {_number(row.busbw_GBps)}"
    yield f"within: {_word(row.within)}"


def _word(text: str) -> str:
    """Write text so that YAML reads the same text: quoted unless it is a plain word."""
    plain = text.isascii() and text.isalnum() and text[0].isalpha()
    quoted = text.lower() in {"true", "false", "null"} or not plain
    return json.dumps(text, ensure_ascii=False) if quoted else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
