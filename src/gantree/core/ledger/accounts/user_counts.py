"""How many jobs wait of each user; all unsplit elements of an array count as one."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class UserCounts:
    """A number of jobs by user; users without any are not in it."""

    of_user: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, user: str) -> int:
        return self.of_user.get(user, 0)

    def change(self, user: str, by: int) -> None:
        """Count so many more or fewer."""
        left = self.of_user.get(user, 0) + by
        assert left >= 0, f"more jobs of {user} left than waited"
        if left:
            self.of_user[user] = left
        else:
            self.of_user.pop(user, None)
