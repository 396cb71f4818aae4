"""The view of `gantree top`: three panels that are filled anew with each snapshot, and what the keys do.

Nothing here waits for the daemon: one thread reads snapshots, and a thread for each key asks the rest. Both send
messages, which Textual handles in turn. Threads are daemonic, so that quitting waits for nobody.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import DataTable, Input, Static
from textual.widgets.data_table import ColumnKey

from gantree.cli.top.drawing import (
    JOB_COLUMNS,
    JOB_WIDTHS,
    MAP_WIDTHS,
    QUEUE_WIDTHS,
    domain_cells,
    header,
    job_cells,
    map_title,
    queue_cells,
)
from gantree.cli.top.feed import Feed, Selection, Snapshot, attempted
from gantree.cli.top.screens import HELP, Question, TextWindow
from gantree.model.errors import BadInput, GantreeError

LOAD = 5
"""Of the time that a refresh takes, so many pass before the next."""
SCROLLBAR, BORDERS = 1, 2
SLOW_S = 3.0
"""A daemon that takes longer is said not to answer."""
KEYS = " Tab panel  Enter open  u up  w why  l logs  c cancel  / select  ? help  q quit"
Table = DataTable[Text]


@dataclass
class Refreshed(Message):
    """A new snapshot, or why there is none."""

    snapshot: Snapshot | None
    outage: str = ""


@dataclass
class Answered(Message):
    """What was asked for by a key."""

    title: str
    text: str
    as_window: bool


class Top(App[None]):
    """The application. It begins with a snapshot that was read before."""

    CSS = """
    #header, #keys { height: 1; }
    #keys { color: $text-muted; }
    #above { height: 45%; min-height: 11; max-height: 24; }
    DataTable { border: round $surface-lighten-2; scrollbar-size-vertical: 1; overflow-x: hidden; }
    DataTable:focus { border: round $accent; }
    #map { width: 1fr; }
    #queues { width: 41; }
    #map, #queues { height: 100%; }
    #jobs { height: 1fr; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    #window { border: round $accent; margin: 1 3; padding: 0 1; background: $surface; }
    Question { align: center middle; }
    #question { border: round $warning; width: 60; height: auto; padding: 1; background: $surface; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),  # before the copying of a selection
        Binding("w", "why"),
        Binding("l", "logs"),
        Binding("c", "cancel"),
        Binding("slash", "filter"),
        Binding("a", "show_all"),
        Binding("u,backspace", "up"),
        Binding("r", "refresh_now"),
        Binding("question_mark,h,f1", "help"),
    ]

    def __init__(self, feed: Feed, first: Snapshot, every_s: float) -> None:
        super().__init__()
        self._feed, self._snapshot, self._every_s = feed, first, every_s
        self._outage = ""
        self._wake = threading.Event()
        self._asked_at = time.monotonic()

    def compose(self) -> ComposeResult:
        yield Static(id="header")
        with Horizontal(id="above"):
            yield DataTable(id="map", cursor_type="row", cell_padding=0)
            yield DataTable(id="queues", cursor_type="row", cell_padding=0)
        yield DataTable(id="jobs", cursor_type="row")
        yield Input(id="filter", placeholder="queue=NAME user=NAME phase=PHASE NAME; empty: all")
        yield Static(Text(KEYS, no_wrap=True), id="keys")

    def on_mount(self) -> None:
        for name, widths in (("map", MAP_WIDTHS), ("queues", QUEUE_WIDTHS)):
            for head, width in widths.items():
                is_text = head in ("DOMAIN", "USE", "QUEUE")
                text = Text(head, justify="left" if is_text else "right")
                self._table(name).add_column(text, width=width, key=head)
        for head, width in zip(JOB_COLUMNS, JOB_WIDTHS, strict=True):
            self._table("jobs").add_column(head.upper(), width=width)
        self._table("jobs").focus()
        self.call_after_refresh(self._draw)
        self.set_interval(1.0, self._notice_silence)
        threading.Thread(target=self._read_on, daemon=True).start()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _table(self, name: str) -> Table:
        return self.query_one(f"#{name}", DataTable)

    # Reading

    def _read_on(self) -> None:
        """Read snapshots for ever, on a thread of its own."""
        while True:
            began = self._asked_at = time.monotonic()
            try:
                self.post_message(Refreshed(self._feed.read()))
            except (GantreeError, OSError) as error:
                self.post_message(Refreshed(None, str(error).partition(";")[0]))
            took_s, self._asked_at = time.monotonic() - began, 0.0
            self._wake.wait(max(self._every_s, LOAD * took_s))
            self._wake.clear()

    def _notice_silence(self) -> None:
        asked_at = self._asked_at
        if asked_at and time.monotonic() - asked_at > SLOW_S and not self._outage:
            self._outage = "the daemon does not answer"
            self._draw_header()

    def on_refreshed(self, message: Refreshed) -> None:
        self._outage = message.outage
        if message.snapshot is None:
            self._draw_header()
        else:
            self._snapshot = message.snapshot
            self._draw()

    def _ask(self, title: str, call: Callable[[], str], *, as_window: bool) -> None:
        """Ask the daemon on another thread and show what it says."""

        def run() -> None:
            self.post_message(Answered(title, attempted(call), as_window))

        threading.Thread(target=run, daemon=True).start()

    def on_answered(self, message: Answered) -> None:
        if message.as_window:
            is_log = message.title.startswith("logs")
            text = Text.from_ansi(message.text)
            self.push_screen(TextWindow(message.title, text, at_end=is_log))
        else:
            self.notify(message.text, markup=False)
            self._wake.set()

    # Drawing

    def _draw(self) -> None:
        shown = self._snapshot
        self._draw_header()
        table = self._table("map")
        others = sum(MAP_WIDTHS.values()) - MAP_WIDTHS["USE"] + SCROLLBAR
        wide = max(8, table.outer_size.width - BORDERS - others - 1)
        table.columns[ColumnKey("USE")].width = wide + 1
        rows = shown.domains["domains"]
        self._fill("map", [(row["name"], domain_cells(row, wide)) for row in rows])
        self._table("map").border_title = map_title(shown.domains)
        queues = [row for row in shown.queues if row["kind"] in ("queue", "cohort")]
        self._fill("queues", [(row["name"], queue_cells(row)) for row in queues])
        self._table("queues").border_title = "queues"
        self._fill("jobs", [(row["job"], job_cells(row, time.time())) for row in shown.jobs])
        more = " and more: / selects" if shown.more else ""
        self._table("jobs").border_title = f"{len(shown.jobs)} jobs{more}"

    def _draw_header(self) -> None:
        text = header(self._snapshot, self._outage, str(self._feed.selection))
        self.query_one("#header", Static).update(text)

    def _fill(self, name: str, rows: list[tuple[str, tuple[Text, ...] | list[Text]]]) -> None:
        """Show rows; the cursor stays on the row that it is on."""
        table = self._table(name)
        chosen, line = self._chosen(name), table.cursor_row
        scroll = table.scroll_y
        table.clear()
        for key, cells in dict(rows).items():
            table.add_row(*cells, key=key)
        keys = list(dict(rows))
        is_elsewhere = name == "map" and chosen not in keys  # another domain was opened
        line = keys.index(chosen) if chosen in keys else 0 if is_elsewhere else line
        table.move_cursor(row=line, scroll=False)
        table.scroll_to(y=0 if is_elsewhere else scroll, animate=False)

    def _chosen(self, name: str) -> str | None:
        """The key of the row under the cursor."""
        table = self._table(name)
        if not table.is_valid_row_index(table.cursor_row):
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    # Keys

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        key = event.row_key.value
        if event.data_table.id == "map":
            self._go(key)
        elif event.data_table.id == "queues":
            self._select(Selection(queue=self._queue_of(key)))
            self._table("jobs").focus()
        else:
            self.action_why()

    def _queue_of(self, name: str | None) -> str | None:
        return next((row["queue"] for row in self._snapshot.queues if row["name"] == name), None)

    def _go(self, inside: str | None) -> None:
        """Show the inside of a domain."""
        self._feed.inside = inside
        self._wake.set()

    def action_up(self) -> None:
        self._go(self._snapshot.domains["parent"])

    def action_why(self) -> None:
        self._about_job("why", self._feed.why)

    def action_logs(self) -> None:
        self._about_job("logs", self._feed.logs)

    def _about_job(self, what: str, ask: Callable[[str], str]) -> None:
        job = self._chosen("jobs")
        if job is not None:
            self._ask(f"{what} {job}", partial(ask, job), as_window=True)

    def action_cancel(self) -> None:
        job = self._chosen("jobs")
        if job is None:
            return

        def cancel(yes: bool | None) -> None:
            if yes:
                self._ask("cancel", partial(self._feed.cancel, job), as_window=False)

        self.push_screen(Question(f"Cancel {job}?"), cancel)

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = str(self._feed.selection)
        self.screen.set_focus(field)  # at once: the next key may be in the same packet

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            selection = Selection.parse(event.value)
            self._feed.check(selection)
        except BadInput as error:
            self._say(Text(f" {error}", "bold red", no_wrap=True, overflow="ellipsis"))
            return
        self._close_filter()
        self._select(selection)

    def key_escape(self) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self._say(Text(KEYS, no_wrap=True))
        self._table("jobs").focus()

    def _say(self, line: Text) -> None:
        """Show something in the last line."""
        self.query_one("#keys", Static).update(line)

    def action_show_all(self) -> None:
        self._select(Selection())

    def _select(self, selection: Selection) -> None:
        self._feed.selection = selection
        self._draw_header()
        self._wake.set()

    def action_refresh_now(self) -> None:
        self._wake.set()

    def action_help(self) -> None:
        self.push_screen(TextWindow("help", Text(HELP)))
