"""What the routes work with: the running control loop, and the way to ask its controller something."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gantree.control.controller import Controller
from gantree.control.loop import Loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work with."""

    loop: Loop
    controller: Controller
    started_at: float

    async def ask(self, question: Callable[[Controller], T]) -> T:
        """Run a question on the controller's thread."""
        return await self.loop.call(lambda: question(self.controller))
