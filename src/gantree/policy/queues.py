"""The tree of queues: numbered nodes for the queues of a policy, and the queue of a job. No amounts, no jobs.

Node 0 is the whole cluster. Below it stand the queues, each under its parent, parents before children. Queues that
name a cohort stand under a node of that cohort, which stands under their parent; cohorts of one name under different
parents are different ones. Siblings that name none stand directly under their parent, which is their cohort. A user has
a node of their own under a queue where users share it evenly (`share_users`) or where the queue's rule limits users.

Without rules the tree is open: any queue that a job names is made on first use, with weight 1. A queue that the rules
do not know (one that was taken out of the policy while its jobs run) gets a node too, so what runs in it is counted
under the nearest parent that is known; `problem` says why no new job may go there.
"""

from collections.abc import Sequence

from gantree.model.errors import BadInput
from gantree.policy.rules import QueueRule
from gantree.text.words import did_you_mean

ROOT = 0
"""The node of the whole cluster."""
_NAMED = 12
"""So many queues are named in a sentence about an unknown one."""


class QueueTree:
    """Queues, cohorts and users as numbered nodes; the lists are by node.

    parent: -1 for the root. weight: a cohort's is the sum of its queues', so that a cohort changes nothing about what
    is due while all its queues have work. name: for people. rule: None for the root, cohorts, users and queues made on
    use. queue: the path of the queue that a node is or that a user's node is under; "" for the root and cohorts. user:
    whose node it is ("" for jobs of nobody), None for any other node.
    """

    def __init__(self, rules: Sequence[QueueRule], share_users: bool = False) -> None:
        """Raise BadInput for a queue that is told twice, or before its parent."""
        self.open = not rules
        self.share_users = share_users
        self.parent: list[int] = []
        self.weight: list[float] = []
        self.name: list[str] = []
        self.rule: list[QueueRule | None] = []
        self.queue: list[str] = []
        self.user: list[str | None] = []
        self.children: list[list[int]] = []
        self._paths: list[tuple[int, ...]] = []
        self._node_of_queue: dict[str, int] = {}
        self._node_of_cohort: dict[tuple[int, str], int] = {}
        self._node_of_user: dict[tuple[int, str], int] = {}
        self._known: tuple[str, ...] = tuple(rule.path for rule in rules)
        self._divided = frozenset(path.rpartition("/")[0] for path in self._known)
        self._add(-1, 0.0, "the cluster", None, "")
        for rule in rules:
            self._add_queue(rule)

    def __len__(self) -> int:
        return len(self.parent)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from this one up to the root, both included."""
        return self._paths[node]

    def shared_path(self, node: int) -> tuple[int, ...]:
        """Return the nodes that compete for a fair share, from this one up, without the root.

        A user's node is among them only where users share their queue.
        """
        path = self._paths[node][:-1]
        return path if self.user[node] is None or self.share_users else path[1:]

    def leaf(self, queue: str, user: str = "") -> int:
        """Return the node that counts a job of this queue and user; made on first use where it is not there yet."""
        node = self._node_of_queue.get(queue)
        if node is None:
            node = self._add_unruled(queue)
        if not self._counts_users(node):
            return node
        return self._node_of_user.get((node, user)) or self._add_user(node, user)

    def problem(self, queue: str) -> str:
        """Return why no job may be handed in to a queue, "" where it may."""
        if self.open:
            return ""
        node = self._node_of_queue.get(queue)
        if node is None or self.rule[node] is None:
            return self._unknown(queue)
        if queue not in self._divided:
            return ""
        inner = [path.rpartition("/") for path in self._known]
        names = [name for above, _, name in inner if above == queue]
        return f"`{queue}` has queues of its own: {_listed(names)}"

    def label(self, node: int) -> str:
        """Return what people call a node: "queue research", "cohort all", "ann in research", "the cluster"."""
        is_queue = bool(self.queue[node]) and self.user[node] is None
        return f"queue {self.name[node]}" if is_queue else self.name[node]

    def limiting_rule(self, node: int) -> QueueRule | None:
        """Return the rule that limits a node: a queue's own; that of the queue for a user's node."""
        return self.rule[node if self.user[node] is None else self.parent[node]]

    def most_running(self, node: int) -> int | None:
        """Return how many jobs under a node may run at a time, None for any number."""
        rule = self.limiting_rule(node)
        if rule is None:
            return None
        return rule.most_running if self.user[node] is None else rule.most_running_per_user

    def is_cohort(self, node: int) -> bool:
        """Whether a node is a named cohort."""
        return node != ROOT and not self.queue[node]

    def queue_node(self, queue: str) -> int | None:
        """Return the node of a queue, None where there is none (yet)."""
        return self._node_of_queue.get(queue)

    def under(self, node: int) -> list[int]:
        """Return the nodes of a subtree, parents before children."""
        found = [node]
        for each in found:
            found.extend(self.children[each])
        return found

    def _unknown(self, queue: str) -> str:
        hint = did_you_mean(queue, self._known)
        ending = f". {hint}" if hint else ""
        return f"there is no queue `{queue}`; queues are {_listed(self._admitting())}{ending}"

    def _admitting(self) -> list[str]:
        return [path for path in self._known if path not in self._divided]

    def _counts_users(self, node: int) -> bool:
        rule = self.rule[node]
        limited = rule is not None and (
            bool(rule.user_limit) or rule.most_running_per_user is not None
        )
        return self.share_users or limited

    def _add_queue(self, rule: QueueRule) -> None:
        if rule.path in self._node_of_queue:
            raise BadInput(f"queue `{rule.path}` is told twice; tell each queue once")
        above = rule.path.rpartition("/")[0]
        if above and above not in self._node_of_queue:
            raise BadInput(f"queue `{rule.path}` comes before its parent; tell `{above}` first")
        parent = self._node_of_queue[above] if above else ROOT
        if rule.cohort is not None:
            parent = self._cohort(parent, rule.cohort)
            self.weight[parent] += rule.weight
        node = self._add(parent, rule.weight, rule.path, rule, rule.path)
        self._node_of_queue[rule.path] = node

    def _cohort(self, parent: int, cohort: str) -> int:
        key = (parent, cohort)
        if key not in self._node_of_cohort:
            self._node_of_cohort[key] = self._add(parent, 0.0, f"cohort {cohort}", None, "")
        return self._node_of_cohort[key]

    def _add_unruled(self, queue: str) -> int:
        above = queue.rpartition("/")[0]
        parent = ROOT
        if above:
            known = self._node_of_queue.get(above)
            parent = self._add_unruled(above) if known is None else known
        node = self._add(parent, 1.0, queue, None, queue)
        self._node_of_queue[queue] = node
        return node

    def _add_user(self, queue_node: int, user: str) -> int:
        queue = self.queue[queue_node]
        node = self._add(queue_node, 1.0, f"{user or 'nobody'} in {queue}", None, queue, user)
        self._node_of_user[queue_node, user] = node
        return node

    def _add(
        self,
        parent: int,
        weight: float,
        name: str,
        rule: QueueRule | None,
        queue: str,
        user: str | None = None,
    ) -> int:
        node = len(self.parent)
        self.parent.append(parent)
        self.weight.append(weight)
        self.name.append(name)
        self.rule.append(rule)
        self.queue.append(queue)
        self.user.append(user)
        self.children.append([])
        self._paths.append((node, *self._paths[parent]) if parent >= 0 else (node,))
        if parent >= 0:
            self.children[parent].append(node)
        return node


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
