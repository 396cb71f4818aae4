"""The rules in CEL of gantree's definitions, evaluated as an API server does: on an object, and on what it was."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.celtypes import IntType

from gantree.executors.kubernetes.pods.gang_spec import InvalidObject
from gantree.executors.kubernetes.workloads.gangjob import NO_ALTERNATIVES, gang_spec
from support.yaml_text import read_yaml

Json = dict[str, Any]

CRDS = Path(__file__).parents[2] / "deploy/kubernetes/crds"
TEMPLATE = {"spec": {"containers": [{"name": "train"}]}}


def schema(plural: str) -> Json:
    (version,) = read_yaml((CRDS / f"{plural}.yaml").read_text())["spec"]["versions"]
    told: Json = version["schema"]["openAPIV3Schema"]
    return told


def broken(new: Json, old: Json | None = None, plural: str = "gangjobs") -> list[str]:
    """The messages of all rules that an object breaks; those about changes count where there was one before."""
    return list(_broken(schema(plural), new, old))


def _broken(told: Json, new: Any, old: Any) -> Iterator[str]:
    for rule in told.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        if not _value(rule["rule"], new, old):
            yield rule["message"]
    for name, below in told.get("properties", {}).items():
        if name in new:
            yield from _broken(below, new[name], None if old is None else old.get(name))
    keys = told.get("x-kubernetes-list-map-keys", ())
    for each in new if "items" in told and isinstance(new, list) else ():
        before = [one for one in old or () if all(one.get(key) == each.get(key) for key in keys)]
        yield from _broken(told["items"], each, before[0] if keys and before else None)


def _value(rule: str, new: Any, old: Any) -> bool:
    """What a rule says; lists have a sum in Kubernetes' CEL."""
    environment = celpy.Environment()
    total: Any = {"sum": lambda numbers: IntType(sum(map(int, numbers)))}
    program = environment.program(environment.compile(rule), functions=total)
    return bool(program.evaluate({"self": json_to_cel(new), "oldSelf": json_to_cel(old)}))


def gangjob(members: int = 4, elastic: Json | None = None, **spec: Any) -> Json:
    role = {"role": "worker", "members": members, "processes": 1, "template": TEMPLATE}
    told = {} if elastic is None else {"elastic": elastic}
    return {"metadata": {"name": "llama"}, "spec": {"gang": [role], **told, **spec}}


def test_what_is_right_breaks_no_rule() -> None:
    old = gangjob(elastic={"min": 2, "max": 8})
    assert broken(old) == broken(old, deepcopy(old)) == broken(gangjob(), gangjob()) == []


@pytest.mark.parametrize(
    ("sizes", "members"), [({"min": 2, "max": 8}, 1), ({"min": 2, "max": 8}, 9), ({"min": 3, "max": 2}, 3)]
)  # fmt: skip
def test_members_lie_between_the_bounds(sizes: Json, members: int) -> None:
    assert broken(gangjob(members, sizes)) == [
        "the members of an elastic gang lie between its min and its max"
    ]


def test_a_gang_of_two_roles_is_not_elastic() -> None:
    told = gangjob(elastic={"min": 2, "max": 8})
    told["spec"]["gang"].append({**told["spec"]["gang"][0], "role": "logger"})
    assert broken(told) == ["only a gang of one role is elastic"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"min": 2, "max": 8}),
        ({"min": 2, "max": 8}, None),
        ({"min": 2, "max": 8}, {"min": 2, "max": 4}),
    ],
)
def test_bounds_do_not_change(before: Json | None, after: Json | None) -> None:
    assert broken(gangjob(elastic=after), gangjob(elastic=before)) == [
        "the bounds of an elastic gang do not change; make another GangJob"
    ]


def test_members_that_are_asked_for_may_change_between_the_bounds() -> None:
    old = gangjob(elastic={"min": 2, "max": 8, "members": 3})
    assert broken(gangjob(elastic={"min": 2, "max": 8, "members": 8}), old) == []
    assert broken(gangjob(elastic={"min": 2, "max": 8, "members": 9}), old) == [
        "the members that are asked for lie between min and max"
    ]


def test_the_rules_that_were_there_hold_too() -> None:
    assert broken(gangjob(3), gangjob(4)) == [
        "members and processes do not change; make another GangJob"
    ]
    assert broken(gangjob(0)) == ["a gang has at least one member"]
    slices = {"slices": {"members": 5, "required": "leaf"}}
    assert broken(gangjob(topology=slices)) == ["a slice has at most as many members as the gang"]


def service(template: Json | None = None, **spec: Any) -> Json:
    """A service as the server fills it in."""
    gang = {"gang": [{"role": "worker", "template": TEMPLATE}], **(template or {})}
    told = {"replicas": {"min": 1, "wanted": 1}, "port": 8000, "template": {"spec": gang}}
    return {"metadata": {"name": "chat"}, "spec": {**told, **spec}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, []),
        ({"replicas": {"min": 3}}, []),
        ({"replicas": {"min": 0, "floor": 1}}, []),
        ({"replicas": {"min": 0, "floor": 2}}, ["replicas.floor is at most replicas.max"]),
        ({"replicas": {"min": 3, "max": 2}}, ["replicas.min is at most replicas.max"]),
        ({"update": {"surge": 0, "unavailable": 1}}, []),
        ({"update": {"surge": 0}}, ["update.surge and update.unavailable are not both 0"]),
        ({"scale": {"targets": [{"metric": "queue", "target": 1}]}}, []),
        (
            {"scale": {"targets": [{"metric": "queue", "query": "up", "target": 1}]}},
            ["a target has a metric or a query"],
        ),
        ({"scale": {"targets": [{"target": 1}]}}, ["a target has a metric or a query"]),
    ],
)
def test_numbers_of_a_service_go_together(spec: Json, said: list[str]) -> None:
    assert broken(service(**spec), plural="gangservices") == said


def test_the_port_of_a_service_stays_and_its_template_may_change() -> None:
    before, after = service(), service({"queue": "serving", "topology": {"required": "leaf"}})
    assert broken(after, before, "gangservices") == []
    assert broken(service(port=8001), before, "gangservices") == [
        "the port does not change; make another GangService"
    ]


def test_the_template_of_a_service_is_a_gang() -> None:
    """By the rules of GangJobs: of a role that names no number of members there is one."""
    none = {"gang": [{"role": "worker", "members": 0, "template": TEMPLATE}]}
    assert broken(service(none), plural="gangservices") == ["a gang has at least one member"]
    back_off = {"restarts": {"backoffSeconds": 600}}
    said = ["backoffSeconds is at most backoffMaxSeconds"]
    assert broken(service(back_off), plural="gangservices") == said
    back_off["restarts"]["backoffMaxSeconds"] = 600
    assert broken(service(back_off), plural="gangservices") == []
    slices = {"topology": {"slices": {"members": 2, "required": "leaf"}}}
    assert broken(service(slices), plural="gangservices") == [
        "a slice has at most as many members as the gang"
    ]


def test_shapes_to_choose_from_are_refused_with_what_there_is_instead() -> None:
    told = gangjob()
    told["spec"]["gang"][0]["alternatives"] = [{"each": {"devices": {"nvidia.com/mig-3g.40gb": 1}}}]
    assert broken(told) == [NO_ALTERNATIVES]
    assert broken(service(told["spec"]), plural="gangservices") == [NO_ALTERNATIVES]
    with pytest.raises(InvalidObject, match="firstAvailable"):
        gang_spec(told["spec"])


@pytest.mark.parametrize("plural", ["gangjobs", "gangservices"])
def test_what_is_filled_in_keeps_the_rules_beside_it(plural: str) -> None:
    """A server refuses a definition otherwise; it looks at a default before those inside of it are filled in."""
    found = list(_defaults(schema(plural)))
    assert found
    for below, default in found:
        assert list(_broken(below, default, None)) == []


def _defaults(told: Json) -> Iterator[tuple[Json, Any]]:
    """All schemas that fill something in, with what."""
    if "default" in told:
        yield told, told["default"]
    items = [told["items"]] if "items" in told else []
    for below in (*told.get("properties", {}).values(), *items):
        yield from _defaults(below)


def test_a_name_is_one_of_a_service_too() -> None:
    job, chat = gangjob(), service()
    job["metadata"]["name"] = chat["metadata"]["name"] = "llama-3.1"
    said = ["the name has no dots, for it is that of a Service"]
    assert broken(job) == broken(chat, plural="gangservices") == said


def test_nothing_is_filled_into_a_template() -> None:
    """Or a new version of the definition would be another revision of each service."""
    spec = schema("gangservices")["properties"]["spec"]
    assert "default" not in str(spec["properties"]["template"])
    assert spec["properties"]["replicas"]["properties"]["wanted"]["default"] == 1, (
        "or HPA could not read it"
    )
