"""What is asked by a POST to a part of an object: to bind a pod, to evict a pod."""

from collections.abc import Callable

from support.kubernetes.rules import budgets, pods
from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.objects import DeleteOptions, Objects
from support.kubernetes.server.statuses import Json, bad_request

Post = Callable[[Objects, Resource, str, str, Json], None]


def _bind(objects: Objects, resource: Resource, namespace: str, name: str, body: Json) -> None:
    _check_name(body, name)
    old = objects.get(resource, namespace, name)
    objects.keep(resource, old, pods.bind(objects, old.content, body))


def _evict(objects: Objects, resource: Resource, namespace: str, name: str, body: Json) -> None:
    _check_name(body, name)
    pod = objects.get(resource, namespace, name).content
    options = DeleteOptions.read(body.get("deleteOptions") or {}, {})
    if budget := budgets.to_charge(objects, pod):
        kept = objects.catalog.any_version("policy", "poddisruptionbudgets")
        assert kept is not None
        old = objects.get(kept, namespace, budget["metadata"]["name"])
        objects.keep(kept, old, budgets.charged(old.content, pod, objects.now()))
    found = objects.get(resource, namespace, name)
    objects.keep(resource, found, budgets.disrupted(found.content, objects.now()))
    objects.delete(resource, namespace, name, options)


def _check_name(body: Json, name: str) -> None:
    told = (body.get("metadata") or {}).get("name", name)
    if told != name:
        raise bad_request(f"name in URL does not match name in the object: {name} != {told}")


POSTS: dict[tuple[str, str], Post] = {("pods", "binding"): _bind, ("pods", "eviction"): _evict}
