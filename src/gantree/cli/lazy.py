"""A group of commands, each a module that is imported only when its command is called.

`gantree jobs` must answer in a tenth of a second, and NumPy alone takes two. So a group lists for each command
its module and, once more, the first line of its help; a test holds the two equal. A module has its command or
group as `app`.
"""

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from gantree.cli.examples import add_example
from gantree.control.garbage import without_collecting


class Listed(NamedTuple):
    """The module of a command, and its line in the group's help."""

    module: str
    help: str


class LazyGroup(TyperGroup):
    """Lists commands by name and help line; subclasses say which."""

    LISTED: ClassVar[Mapping[str, Listed]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, listed in self.LISTED.items():
            self.add_command(TyperCommand(name, help=listed.help, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The name, the real command and its arguments. A usage error for an unknown name."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return None, None, rest
        command = self.load(name)
        add_example(command, f"{ctx.command_path} {name}".partition(" ")[2])
        return name, command, rest

    def load(self, name: str) -> Any:
        """Import a command's module and return its Typer command."""
        with without_collecting():
            module = importlib.import_module(self.LISTED[name].module)
        return typer.main.get_command(module.app)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the list, which is the order people meet them in."""
        return list(self.LISTED)
