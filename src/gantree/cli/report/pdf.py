"""A report as PDF, by fpdf2 (an extra): A4, a head on the first page, numbered pages, the head of a table on each.

The fonts are those that every reader of PDF has, which know the letters of western European languages; others become
their base letter, or `?`.
"""

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gantree.cli.report.document import Column, Report, Table
from gantree.model.errors import Unsupported

if TYPE_CHECKING:
    from fpdf import FPDF

FONT = "Helvetica"
BLUE, GREY, DARK, LINE, SHADE = (
    (31, 78, 121), (96, 104, 120), (26, 34, 48), (205, 212, 222), (238, 242, 247),
)  # fmt: skip
MARGIN_MM, FOOT_MM = 14.0, 16.0
SMALL, NORMAL = 7.5, 9.0
TABLE_SIZES = (8.0, 7.5, 7.0, 6.5, 6.0, 5.5, 5.0)
"""Of the letters of a table: the largest at which its figures, and names up to NAMES_MM, fit the page."""
NAMES_MM = 28.0
ROW_MM, HEAD_ROW_MM = 4.8, 4.2
BOX_MM, GAP_MM = 14.0, 3.0
_LETTERS = str.maketrans("\u0141\u0142\u0110\u0111\u0131\u2013\u2212", "LlDdi--")
"""Letters that have no base letter in Unicode, and dashes."""


def pdf_of(report: Report) -> bytes:
    """The file. Raises Unsupported where fpdf2 is not installed."""
    try:
        from fpdf import FPDF  # noqa: PLC0415 - an extra
    except ImportError:
        raise Unsupported("PDF needs fpdf2: pip install 'gantree[report]'") from None
    made = datetime.fromtimestamp(report.made_at, UTC)
    foot = latin(f"{report.title}: {report.subtitle} - made {made:%Y-%m-%d %H:%M} UTC")

    class Pages(FPDF):
        def footer(self) -> None:
            self.set_y(-FOOT_MM + 4)
            self.set_font(FONT, size=SMALL)
            self.set_text_color(*GREY)
            self.cell(self.epw * 0.8, 4, _fitting(self, foot, self.epw * 0.8))
            self.cell(0, 4, f"Page {self.page_no()} of {{nb}}", align="R")

    pdf = Pages(format="A4")
    pdf.set_margins(MARGIN_MM, MARGIN_MM)
    pdf.set_auto_page_break(auto=True, margin=FOOT_MM)
    pdf.set_creation_date(made)
    pdf.set_title(latin(f"{report.title}: {report.subtitle}"))
    pdf.set_creator("gantree")
    pdf.set_lang("en")
    pdf.add_page()
    _head(pdf, report)
    for table in report.tables:
        _table(pdf, table)
    _notes(pdf, report.notes)
    return bytes(pdf.output())


def latin(text: str) -> str:
    """Text in the letters that the fonts have."""
    return "".join(_letter(each) for each in text.translate(_LETTERS))


def _letter(letter: str) -> str:
    if ord(letter) < 256:
        return letter
    base = unicodedata.normalize("NFKD", letter)[0]
    return base if ord(base) < 256 else "?"


def _head(pdf: "FPDF", report: Report) -> None:
    pdf.set_text_color(*BLUE)
    pdf.set_font(FONT, "B", 18)
    pdf.multi_cell(0, 8, latin(report.title), new_x="LMARGIN", new_y="NEXT")
    pdf.set_text_color(*GREY)
    pdf.set_font(FONT, size=11)
    pdf.multi_cell(0, 6, latin(report.subtitle), new_x="LMARGIN", new_y="NEXT")
    pdf.set_draw_color(*BLUE)
    pdf.set_line_width(0.8)
    pdf.line(MARGIN_MM, pdf.get_y() + 1, MARGIN_MM + pdf.epw, pdf.get_y() + 1)
    pdf.ln(4)
    for name, value in report.facts:
        pdf.set_font(FONT, size=NORMAL)
        pdf.set_text_color(*GREY)
        pdf.cell(32, 5, latin(name))
        pdf.set_text_color(*DARK)
        pdf.multi_cell(0, 5, latin(value), new_x="LMARGIN", new_y="NEXT")
    pdf.ln(3)
    _headlines(pdf, report.headlines)


def _headlines(pdf: "FPDF", headlines: Sequence[tuple[str, str]]) -> None:
    if not headlines:
        return
    width = (pdf.epw - GAP_MM * (len(headlines) - 1)) / len(headlines)
    top = pdf.get_y()
    for place, (figure, words) in enumerate(headlines):
        left = MARGIN_MM + place * (width + GAP_MM)
        pdf.set_draw_color(*LINE)
        pdf.set_line_width(0.2)
        pdf.rect(left, top, width, BOX_MM)
        pdf.set_fill_color(*BLUE)
        pdf.rect(left, top, 1.1, BOX_MM, style="F")
        pdf.set_xy(left + 3, top + 2)
        pdf.set_text_color(*DARK)
        pdf.set_font(FONT, "B", 12)
        pdf.cell(width - 4, 5, _fitting(pdf, latin(figure), width - 4))
        pdf.set_xy(left + 3, top + 8)
        pdf.set_text_color(*GREY)
        pdf.set_font(FONT, size=SMALL)
        pdf.cell(width - 4, 4, _fitting(pdf, latin(words), width - 4))
    pdf.set_xy(MARGIN_MM, top + BOX_MM + 6)


def _table(pdf: "FPDF", table: Table) -> None:
    size, widths = _fitted(pdf, table)
    if pdf.will_page_break(26):
        pdf.add_page()
    pdf.set_text_color(*BLUE)
    pdf.set_font(FONT, "B", 11)
    pdf.cell(0, 6, latin(table.title), new_x="LMARGIN", new_y="NEXT")
    if table.note:
        pdf.set_text_color(*GREY)
        pdf.set_font(FONT, size=8)
        pdf.multi_cell(0, 4, latin(table.note), align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(1)
    _column_titles(pdf, table.columns, widths, size)
    for row in table.rows:
        if pdf.will_page_break(_row_height(pdf, table.columns, widths, row, size)):
            pdf.add_page()
            _column_titles(pdf, table.columns, widths, size)
        _row(pdf, table.columns, widths, row, size)
    if table.total is not None:
        _row(pdf, table.columns, widths, table.total, size, is_total=True)
    pdf.ln(5)


def _fitted(pdf: "FPDF", table: Table) -> tuple[float, list[float]]:
    """The size of a table's letters, and the widths of its columns."""
    for size in TABLE_SIZES:
        widths = _widths(pdf, table, size)
        if widths is not None:
            return size, widths
    raise AssertionError("the smallest size always fits")


def _widths(pdf: "FPDF", table: Table, size: float) -> list[float] | None:
    """Widths of columns: figures as wide as they are, names share the rest; None where they do not fit the page."""
    rows = [*table.rows, *([table.total] if table.total else [])]
    pdf.set_font(FONT, "B", size)
    widths = []
    for place, column in enumerate(table.columns):
        words = max(
            (pdf.get_string_width(latin(word)) for word in column.title.split(" ")), default=0
        )
        cells = max((pdf.get_string_width(latin(row[place])) for row in rows), default=0)
        widths.append(max(words, cells if column.is_figure else min(cells, NAMES_MM)) + 3.2)
    spare = pdf.epw - sum(widths)
    if spare < 0 and size > TABLE_SIZES[-1]:
        return None
    names = sum(column.width for column in table.columns if not column.is_figure)
    if spare < 0 or not names:
        return [width * pdf.epw / sum(widths) for width in widths]
    return [
        width + (0 if column.is_figure else spare * column.width / names)
        for column, width in zip(table.columns, widths, strict=True)
    ]


def _column_titles(
    pdf: "FPDF", columns: Sequence[Column], widths: Sequence[float], size: float
) -> None:
    pdf.set_font(FONT, "B", size)
    pdf.set_text_color(*DARK)
    pdf.set_fill_color(*SHADE)
    lines: list[list[str]] = [
        pdf.multi_cell(width, HEAD_ROW_MM, latin(column.title), dry_run=True, output="LINES")  # type: ignore[misc]  # lines
        for column, width in zip(columns, widths, strict=True)
    ]
    rows = max(len(each) for each in lines)
    left, top = pdf.l_margin, pdf.get_y()
    pdf.rect(left, top, pdf.epw, rows * HEAD_ROW_MM + 1, style="F")
    for column, width, title in zip(columns, widths, lines, strict=True):
        pdf.set_xy(left, top + 0.5 + (rows - len(title)) * HEAD_ROW_MM)
        pdf.multi_cell(width, HEAD_ROW_MM, "\n".join(title), align="R" if column.is_figure else "L")
        left += width
    pdf.set_xy(pdf.l_margin, top + rows * HEAD_ROW_MM + 1)


def _row(
    pdf: "FPDF",
    columns: Sequence[Column],
    widths: Sequence[float],
    row: Sequence[str],
    size: float,
    *,
    is_total: bool = False,
) -> None:
    pdf.set_font(FONT, "B" if is_total else "", size)
    pdf.set_text_color(*DARK)
    pdf.set_draw_color(*(GREY if is_total else LINE))
    pdf.set_line_width(0.35 if is_total else 0.15)
    top = pdf.get_y()
    if is_total:
        pdf.line(pdf.l_margin, top, pdf.l_margin + pdf.epw, top)
    left, height = pdf.l_margin, 0.0
    for column, width, cell in zip(columns, widths, row, strict=True):
        lines = _cell_lines(pdf, column, width, cell)
        for place, line in enumerate(lines):
            pdf.set_xy(left, top + place * ROW_MM)
            pdf.cell(width, ROW_MM, line, align="R" if column.is_figure else "L")
        left, height = left + width, max(height, len(lines) * ROW_MM)
    pdf.set_xy(pdf.l_margin, top + height)
    pdf.line(pdf.l_margin, top + height, pdf.l_margin + pdf.epw, top + height)


def _row_height(
    pdf: "FPDF",
    columns: Sequence[Column],
    widths: Sequence[float],
    row: Sequence[str],
    size: float,
) -> float:
    pdf.set_font(FONT, size=size)
    cells = zip(columns, widths, row, strict=True)
    return ROW_MM * max(len(_cell_lines(pdf, *cell)) for cell in cells)


def _cell_lines(pdf: "FPDF", column: Column, width: float, cell: str) -> list[str]:
    """A cell as it is written."""
    if column.is_figure:
        return [latin(cell)]
    if not column.wraps:
        return [_fitting(pdf, latin(cell), width - 2)]
    return pdf.multi_cell(width, ROW_MM, latin(cell), dry_run=True, output="LINES")  # type: ignore[return-value]  # lines


def _fitting(pdf: "FPDF", text: str, width: float) -> str:
    """Text that is no wider; what is cut off becomes dots."""
    if pdf.get_string_width(text) <= width:
        return text
    while text and pdf.get_string_width(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."


def _notes(pdf: "FPDF", notes: Sequence[tuple[str, str]]) -> None:
    if not notes:
        return
    if pdf.will_page_break(30):
        pdf.add_page()
    pdf.set_text_color(*BLUE)
    pdf.set_font(FONT, "B", 11)
    pdf.cell(0, 7, "How this was calculated", new_x="LMARGIN", new_y="NEXT")
    for heading, text in notes:
        pdf.set_text_color(*DARK)
        pdf.set_font(FONT, "B", NORMAL)
        pdf.cell(0, 5, latin(heading), new_x="LMARGIN", new_y="NEXT")
        pdf.set_font(FONT, size=NORMAL - 0.5)
        pdf.multi_cell(0, 4.2, latin(text), align="L", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(1.2)
