"""Values of a header's options, with the problems and warnings found while reading them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gantree.formats.slurm import values
from gantree.formats.slurm.header import Option
from gantree.model.errors import Problem
from gantree.text.words import shortened

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeaderValues:
    """Options by name. Problems and warnings, each with its line, are added as values are read."""

    options: Mapping[str, Option]
    problems: list[Problem]
    warnings: list[tuple[int, str]] = field(default_factory=list)

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The value of an option; None if it is missing, or wrong, which adds a problem."""
        option = self.options.get(name)
        if option is None or option.value is None:
            return None
        try:
            return parse(option.value)
        except values.BadValue as error:
            problem = option.problem(f"`{shortened(option.value)}`", str(error))
            if problem not in self.problems:
                self.problems.append(problem)
            return None

    def text(self, name: str) -> str | None:
        """The text of an option; None if it is missing."""
        return self.read(name, str)

    def last(self, *names: str) -> str | None:
        """The last of several options that contradict each other; None if there is none."""
        found = [self.options[name] for name in names if name in self.options]
        return max(found, key=lambda option: option.line).name if found else None

    def warn(self, name: str, text: str) -> None:
        """Add a warning about an option that is there."""
        option = self.options[name]
        self.warnings.append((option.line, f"{option.mark} --{name}: {text}"))
