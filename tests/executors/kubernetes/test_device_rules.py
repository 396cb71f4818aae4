"""Expressions in CEL about devices, as in Kubernetes' documentation and in drivers' own examples."""

import pytest

from gantree.executors.kubernetes.pods.cel import without_bind
from gantree.executors.kubernetes.pods.device_rules import BadRule, Facts, Version, means

D = "gpu.example.com"
H200 = Facts(
    D,
    (
        (f"{D}/type", "gpu"),
        (f"{D}/productName", "NVIDIA H200"),
        (f"{D}/index", 3),
        (f"{D}/healthy", True),
        (f"{D}/driverVersion", Version("570.86.15")),
    ),
    ((f"{D}/memory", "141Gi"),),
)
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'


@pytest.mark.parametrize(
    "expression",
    [
        f'device.driver == "{D}"',
        f'{C}.memory.compareTo(quantity("80Gi")) >= 0',
        f'{C}.memory.isGreaterThan(quantity("140Gi")) && {C}.memory.isLessThan(quantity("142Gi"))',
        f'{C}.memory == quantity("144384Mi")',
        f'{A}.driverVersion.isGreaterThan(semver("570.86.2"))',
        f'{A}.driverVersion.compareTo(semver("570.86.15-rc.1")) > 0',
        f"{A}.driverVersion.major() == 570 && {A}.driverVersion.patch() == 15",
        f'{A}.productName.lowerAscii().matches("^nvidia.*h200$")',
        f'cel.bind(a, {A}, a.type == "gpu" && a.healthy)',
        f'cel.bind(a, {A}, cel.bind(t, a.type, t != "gpu, (x)")) && true',
        f"{A}.index in [1, 2, 3]",
        f'!("missing" in {A}) && !has(device.attributes["other"].missing)',
        f'["type", "kind"].exists(name, name in {A})',
        f'{A}.?type.orValue("none") == "gpu" && {A}.?missing.orValue("none") == "none"',
        f'device.attributes[?"{D}"].?index.orValue(0) + {A}.?missing.orValue(1) == 4',
        f"{A}.?healthy.orValue({A}.?missing.orValue(false))",
        f"{A}.?type.hasValue() && !{A}.?missing.hasValue()",
        f'device.capacity[?"{D}"].?memory.orValue(quantity("1")).isGreaterThan(quantity("1Gi"))',
    ],
)
def test_what_is_true_of_a_device(expression: str) -> None:
    assert means(expression, H200)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "other"',
        f'{A}.type == "mig"',
        f'{C}.memory.compareTo(quantity("200Gi")) >= 0',
        f'{A}.driverVersion.isLessThan(semver("9.0.0"))',
        f'{A}.missing == "gpu"',  # no such field: it breaks off
        'device.attributes["other"].type == "gpu"',
        f'{A}.index == "3"',  # another type
        f'{C}.memory.compareTo(quantity("many")) >= 0',
        f"{A}.type.major() == 1",
        "1",
    ],
)
def test_what_is_not_true_of_it(expression: str) -> None:
    assert not means(expression, H200)


@pytest.mark.parametrize("expression", ["device.driver ==", "cel.bind(a, b", "cel.bind(a, b)"])
def test_what_is_no_expression_is_told(expression: str) -> None:
    with pytest.raises(BadRule):
        means(expression, H200)


def test_devices_that_differ_in_what_is_not_named_are_looked_at_once() -> None:
    """Only what goes through a map itself sees names that do not stand in it."""
    other = Facts(D, (*H200.attributes, (f"{D}/uuid", "b")), H200.capacity)
    assert means(f"size({A}) == 5", H200)
    assert not means(f"size({A}) == 5", other)
    assert means(f'{A}["uu" + "id"] == "b"', other)
    assert not means(f'{A}["uu" + "id"] == "b"', H200)


def test_a_bind_is_written_as_a_list_of_one() -> None:
    assert without_bind("x && cel.bind(a, f(1, 2), a + 1) > 0") == (
        "x && ([ f(1, 2)].map(a,  a + 1)[0]) > 0"
    )
