"""A group of commands, each in a module that is imported only when its command is called.

`gantree jobs` must answer in a tenth of a second, and importing NumPy alone takes two. So a group lists for each
command where it is, as `module:name`, and the first line of its help; a test holds the help equal to the command's own.
The name is a function, or a Typer application for a group and for a command with settings of its own.
"""

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from gantree.cli.examples import add_example
from gantree.cli.options import new_app
from gantree.control.garbage import without_collecting


class Listed(NamedTuple):
    """Where a command is, as `module:name`, and its line in the group's help."""

    target: str
    help: str


class LazyGroup(TyperGroup):
    """A group that lists its commands by name and help line in `LISTED` of a subclass."""

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
        module, _, attribute = self.LISTED[name].target.partition(":")
        with without_collecting():
            target = getattr(importlib.import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            app = new_app()
            app.command()(target)
            target = app
        return typer.main.get_command(target)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the list, which is the order people meet them in."""
        return list(self.LISTED)
