"""Who runs this program: the owner of jobs that name none. Standard library only."""

import getpass


def login_name() -> str:
    """Who runs this program, as its environment or the system says; "" where neither has a printable word for it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
    return name if name.isprintable() else ""
