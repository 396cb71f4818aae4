"""The header of a batch script: its `#SBATCH` and `#GANTREE` lines, split into options with the line of each.

As sbatch reads them: a line counts where it begins with the mark and stands before the first command; quotes and `#`
comments are those of a shell. What an option means is not known here but for its arguments: `options`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gantree.model.errors import Problem
from gantree.text.words import did_you_mean, shortened

SLURM, OWN = "#SBATCH", "#GANTREE"
MARKS = (SLURM, OWN)
OWN_INTERPRETER = "gantree"
"""Job files may begin with `#!` and this program, too."""
_INTERPRETER = re.compile(r"#!\s*(\S+)(?:[ \t]+(\S.*?))?\s*$")
_LAUNCHER = re.compile(r"^\s*(?:exec\s+)?(srun|mpirun|mpiexec|sbatch|salloc)\b")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as written: the mark of its line, its long name, its value (None: none was given), its line."""

    mark: str
    name: str
    value: str | None
    line: int

    def problem(self, found: str, allowed: str, hint: str = "") -> Problem:
        """What is wrong with it. The source is filled in later."""
        return Problem("", self.line, f"{self.mark} --{self.name}", found, allowed, hint)


@dataclass(frozen=True, slots=True)
class Known:
    """How an option may be written: its letter ("" for none), and whether it takes a value ("yes", "no", "maybe")."""

    letter: str = ""
    takes: str = "yes"


@dataclass(frozen=True, slots=True)
class Header:
    """A script's header. late: lines with a mark after the first command; launchers: (line, program) of the body."""

    interpreter: tuple[str, ...]
    options: tuple[Option, ...]
    late: tuple[tuple[int, str], ...]
    launchers: tuple[tuple[int, str], ...]


def is_script(text: str) -> bool:
    """Whether this is a script rather than a job file: it begins with `#!`, and not with gantree's own."""
    found = _INTERPRETER.match(text.partition("\n")[0].rstrip("\r"))
    return found is not None and OWN_INTERPRETER not in f"{found[1]} {found[2] or ''}"


def read_header(
    text: str, known: Mapping[str, Mapping[str, Known]]
) -> tuple[Header, list[Problem]]:
    """Read a script's header; known are the options of each mark. Problems have no source yet."""
    problems: list[Problem] = []
    options: list[Option] = []
    late: list[tuple[int, str]] = []
    launchers: list[tuple[int, str]] = []
    in_header = True
    for number, line in enumerate(text.splitlines(), 1):
        mark = next((each for each in MARKS if _is_marked(line, each)), None)
        if mark is not None and in_header:
            options += _options(line[len(mark) :], mark, number, known[mark], problems)
        elif mark is not None:
            late.append((number, mark))
        elif line.strip() and not line.lstrip().startswith("#"):
            in_header = False
            launcher = _LAUNCHER.match(line)
            launchers += [(number, launcher[1])] if launcher else []
    return Header(_interpreter(text), tuple(options), tuple(late), tuple(launchers)), problems


def _is_marked(line: str, mark: str) -> bool:
    return line.startswith(mark) and (len(line) == len(mark) or line[len(mark)] in " \t\r")


def _interpreter(text: str) -> tuple[str, ...]:
    """The words of `#!` as the kernel takes them: the program, and all that follows as one argument."""
    found = _INTERPRETER.match(text.partition("\n")[0].rstrip("\r"))
    return () if found is None else tuple(word for word in found.groups() if word)


def _options(
    text: str, mark: str, line: int, known: Mapping[str, Known], problems: list[Problem]
) -> Iterator[Option]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        problems.append(Problem("", line, mark, shortened(text.strip()), f"options ({error})"))
        return
    while words:
        option = _next(words, mark, line, known, problems)
        if option is not None:
            yield option


def _next(
    words: list[str],
    mark: str,
    line: int,
    known: Mapping[str, Known],
    problems: list[Problem],
) -> Option | None:
    """Take the next option, and its value, off the words of a line."""
    word = words.pop(0)
    name, value = _named(word, known)
    if name is None:
        problems.append(_unknown(word, mark, line, known))
        if words and not words[0].startswith("-"):
            words.pop(0)  # it is as likely a value of the unknown option as a mistake of its own
        return None
    takes = known[name].takes
    if value is None and takes == "yes":
        value = words.pop(0) if words else None
    option = Option(mark, name, value, line)
    if takes == "yes" and value is None:
        problems.append(option.problem("nothing", "a value"))
        return None
    if takes == "no" and value is not None:
        problems.append(option.problem(f"`{shortened(value)}`", "the option alone"))
        return None
    return option


def _named(word: str, known: Mapping[str, Known]) -> tuple[str | None, str | None]:
    """The long name and the value of `--nodes=2`, `--nodes`, `-N2` or `-N`; None for what is no option."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return (name if name in known else None), value if equals else None
    if len(word) > 1 and word.startswith("-"):
        found = next((name for name, each in known.items() if each.letter == word[1]), None)
        return found, word[2:].removeprefix("=") or None
    return None, None


def _unknown(word: str, mark: str, line: int, known: Mapping[str, Known]) -> Problem:
    name = word.partition("=")[0]
    hint = did_you_mean(name.lstrip("-"), known) if name.startswith("-") else ""
    hint = hint.replace("`", "`--", 1)
    found = "an unknown option" if name.startswith("-") else f"`{shortened(word)}`"
    field = f"{mark} {shortened(name)}" if name.startswith("-") else mark
    return Problem("", line, field, found, "options of docs/slurm.md, such as --nodes=2", hint)


def last_of_each(options: Sequence[Option]) -> dict[str, Option]:
    """What counts of options that are written several times: the last, and `#GANTREE` before `#SBATCH`."""
    in_order = sorted(options, key=lambda option: option.mark == OWN)
    return {option.name: option for option in in_order}
