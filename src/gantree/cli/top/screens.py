"""The windows over the view of `gantree top`: a text to scroll, a question before a job is cancelled."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
Tab, Shift-Tab    the next panel: cluster, queues, jobs
Up, Down, PgUp    move in it

Enter             a domain: what is in it; a queue: its jobs; a job: why
Backspace, u      the domain above
w                 why the job waits, or ended
l                 the last lines of its output
c                 cancel it, after a question
/                 select: queue=research user=ann phase=running NAME
a                 all jobs that run or wait
r                 read now
?                 this page
q, Ctrl-C         quit

A strip has a sign for each domain, of a node for each GPU:
·  free     ▁ ▄ █  partly or wholly used     x  out of use
Queues: GPUs used of those guaranteed; yellow: some are borrowed.
"""


class TextWindow(ModalScreen[None]):
    """A text with a title. Any key that does not scroll closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,w,l,question_mark,backspace", "dismiss", "close"),
        Binding("ctrl+c", "app.quit", priority=True),
    ]

    def __init__(self, title: str, text: Text, *, at_end: bool = False) -> None:
        super().__init__()
        self._title, self._text, self._at_end = title, text, at_end

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="window") as window:
            window.border_title = self._title
            window.border_subtitle = "Esc closes"
            yield Static(self._text, markup=False)

    def on_mount(self) -> None:
        window = self.query_one("#window", VerticalScroll)
        window.focus()
        if self._at_end:
            window.scroll_end(animate=False)


class Question(ModalScreen[bool]):
    """A question; only y says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)"),
        Binding("n,escape,q,enter", "answer(False)"),
        Binding("ctrl+c", "app.quit", priority=True),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._text}\n\ny: yes    n: no", justify="center"), id="question")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
