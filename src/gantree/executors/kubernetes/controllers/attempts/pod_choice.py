"""Which pending pod each member of a gang gets: in an elastic gang the one made for it, else the next of its shape."""

from collections import deque
from collections.abc import Callable, Iterable

from gantree.core.view import JobView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.workloads.attempts import Attempt
from gantree.executors.kubernetes.workloads.elastic import pods_by_index
from gantree.executors.kubernetes.workloads.gangs import in_order
from gantree.model.jobs import Role, Shape
from gantree.model.node_restrictions import without_node_restrictions
from gantree.model.orders import MemberLaunch, StartGang

ChoosePod = Callable[[MemberLaunch], Pod | None]


def pod_chooser(pods: list[Pod], order: StartGang, job: JobView) -> ChoosePod:
    """Gives each member of an order one of these pending pods, each pod once; None where none is left."""
    if job.spec.elastic is not None:
        own = pods_by_index(pods, job)
        return lambda launch: own.get(launch.node_rank)
    if len(order.members) == len(pods) == 1:
        shape = without_node_restrictions(job.spec.roles[0].shape)
        alone = pods[0] if pod_request(pods[0]).shape == shape else None
        return lambda launch: alone
    shape_of_role, free = shapes_of(job.spec.roles), pods_by_shape(pods)

    def choose(launch: MemberLaunch) -> Pod | None:
        line = free.get(shape_of_role[launch.role])
        return line.popleft() if line else None

    return choose


def lacks_pods(pods: list[Pod], order: StartGang, job: JobView, attempt: Attempt) -> bool:
    """Whether a member that has no pod yet would get none of these."""
    choose, members = pod_chooser(pods, order, job), attempt.members
    without = [
        each
        for each in order.members
        if (member := members.get(each.node_rank)) is None or not member.uid
    ]
    return any(choose(each) is None for each in without)


def pods_by_shape(pods: Iterable[Pod]) -> dict[Shape, deque[Pod]]:
    """Pods by shape, in member order."""
    found: dict[Shape, deque[Pod]] = {}
    for pod in in_order(pods):
        found.setdefault(pod_request(pod).shape, deque()).append(pod)
    return found


def shapes_of(roles: Iterable[Role]) -> dict[str, Shape]:
    """The shape of each role, by name, without its bars."""
    return {role.name: without_node_restrictions(role.shape) for role in roles}
