"""Who may do what: users by their tokens, with rules as a Role has them.

A server without tokens lets everybody do everything, as one without authorization does.
"""

from dataclasses import dataclass

from support.kubernetes.server.statuses import Refusal, forbidden

ALL = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a rule of a role allows. resources may name a subresource: pods/binding.

    namespaces limits it to those, as a Role that is no ClusterRole is limited; empty: everywhere.
    """

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = ()

    def covers(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether it allows this."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return all(
            told in allowed or ALL in allowed
            for told, allowed in (
                (verb, self.verbs),
                (group, self.groups),
                (resource, self.resources),
            )
        )


EVERYTHING = Grant((ALL,), (ALL,), (ALL,))
"""What an administrator may, of whom a server knows without any role."""


@dataclass(frozen=True, slots=True)
class User:
    """One who asks. namespaces limits the rules to those; empty: everywhere."""

    name: str
    grants: tuple[Grant, ...] = ()
    namespaces: tuple[str, ...] = ()

    def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether any rule allows this."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return any(grant.covers(verb, group, resource, namespace) for grant in self.grants)


class Access:
    """The users of a server, by token.

    knows_roles: for a moment after its start a server has read no role yet. Until then whoever may not do everything
    may do nothing.
    """

    def __init__(self, users: dict[str, User]) -> None:
        self.users = users
        self.knows_roles = True

    def user(self, authorization: str | None) -> User:
        """Who shows a header of authorization."""
        token = (authorization or "").removeprefix("Bearer ").strip()
        if token not in self.users:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        return self.users[token]

    def check(
        self, user: User, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> None:
        """Refuse what a user may not do."""
        is_known = self.knows_roles or EVERYTHING in user.grants
        if is_known and user.may(verb, group, resource, namespace):
            return
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        why = (
            f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{group}"{where}'
        )
        raise forbidden(resource.split("/", maxsplit=1)[0], group, name, why)
