"""The processes of this machine, as /proc has them."""

from pathlib import Path


def below(pid: int) -> dict[str, list[int]]:
    """The processes that were forked from one, and from these, by the name that they give themselves."""
    parents, names = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        number, _, name = head.partition(" (")
        if rest.split()[0] != "Z":
            parents[int(number)], names[int(number)] = int(rest.split()[1]), name
    found: dict[str, list[int]] = {}
    level = [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        for child in level:
            found.setdefault(names[child], []).append(child)
    return found
