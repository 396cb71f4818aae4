"""The Unix users of jobs, where the daemon runs as root and is configured to use them; never root itself."""

import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gantree.model.errors import BadInput

FIRST_OF_PEOPLE = 1000
"""User ids below are for the machine's own services, by what every Linux distribution sets up."""


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What a log-in would give him."""
        return {
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": self.shell or "/bin/sh",
        }


RunAs = Callable[[str], UnixUser]
"""The Unix user that the jobs of a user run as. Raises BadInput where there is none."""


def unix_user(user: str, configured: str | None) -> UnixUser:
    """The Unix user that is configured for a user, else the one of the same name.

    Raises BadInput for one that this machine lacks, for root, and for a system account that is not configured: users
    of an OIDC provider may choose their names.
    """
    way_out = "name one under `unix` in the access file"
    name = user if configured is None else configured
    if not user:
        raise BadInput("user: nobody is named, and jobs run as their users here")
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise BadInput(f"user {user}: this machine has no Unix user {name!r}; {way_out}") from None
    if found.pw_uid == 0:
        raise BadInput(f"user {user}: no job runs as root; {way_out}")
    if configured is None and found.pw_uid < FIRST_OF_PEOPLE:
        raise BadInput(
            f"user {user}: the Unix user {name!r} is an account of the system; {way_out}"
        )
    return UnixUser(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell)
