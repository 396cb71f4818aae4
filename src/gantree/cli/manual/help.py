"""`gantree help [TOPIC]`: topics and commands on the terminal, or all as man pages."""

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.input.words import unknown_word
from gantree.cli.manual.topics import NAMES, as_text, topic
from gantree.cli.options import shallow
from gantree.cli.output.printing import columns


def help_command(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC|COMMAND]", help="What to explain.", autocompletion=lambda: list(NAMES)
        ),
    ] = None,
    man: Annotated[
        Path | None,
        typer.Option(
            "--man",
            metavar="DIR",
            help="Write man pages of all commands and topics into this directory.",
        ),
    ] = None,
) -> None:
    """Explain a topic or a command."""
    program = context.find_root()
    if man is not None:
        from gantree.cli.manual.man_pages import write_man_pages  # noqa: PLC0415 - loads every command

        pages = write_man_pages(shallow(man, "--man"), program.command)
        typer.echo(f"{len(pages)} pages; read one: man -M {man} gantree")
    elif not words:
        typer.echo(_list())
    elif len(words) == 1 and words[0].lower() in NAMES:
        _print_topic(words[0].lower(), program)
    else:
        _print_command(words, program)


def _list() -> str:
    rows = [(name, topic(name).summary) for name in NAMES]
    return "\n".join(
        [
            columns(("TOPIC", "EXPLAINS"), rows),
            "",
            "gantree help TOPIC explains one, gantree help COMMAND a command; gantree --help lists the commands.",
        ]
    )


def _print_topic(name: str, program: Any) -> None:
    typer.echo(as_text(topic(name), shutil.get_terminal_size().columns))
    if name in program.command.list_commands(program):
        typer.echo(f"\ngantree {name} --help lists the options of the command.")


def _print_command(words: list[str], program: Any) -> None:
    """The help of a command. Raises BadInput for what is neither that nor a topic."""
    known = program.command.list_commands(program)
    if words[0] not in known:
        raise unknown_word("TOPIC", words[0], (*NAMES, "or a command"), known)
    program.command.main([*words, "--help"], prog_name="gantree")
