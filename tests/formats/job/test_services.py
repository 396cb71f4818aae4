"""A service in a job file: instances of prefill and decode, and what does not go with them."""

import pytest

from gantree.formats import read_job
from gantree.model.errors import BadFields
from gantree.model.jobs import AxisTraffic, Serving, Traffic, Transformer

SERVICE = """\
name: chat
gang:
  - {role: prefill, members: 4, each: {gpus: 2}}
  - {role: decode, members: 2, each: {gpus: 4}}
  - {role: router, members: 1, each: {cpus: 4}}
parallelism: {prefill: 2, decode: 8}
model: {parameters: 70B, layers: 80, hidden: 8192, heads: 64, kv_heads: 8, sequence: 8192, batch: 32}
traffic: {kv: 1GiB, decode: {bytes: 1MiB, calls: 160}, compute: 1s}
"""


def test_a_service_is_read_in_full() -> None:
    (job,) = read_job(SERVICE, "chat.yaml")
    model = Transformer(70e9, layers=80, hidden=8192, sequence=8192, batch=32, kv_share=0.125)
    axes = (AxisTraffic("kv", 2**30), AxisTraffic("decode", 2**20, 160))
    assert job.serving == Serving(2, 8, model, Traffic(axes, compute_s=1.0))
    assert (job.trains, job.traffic, job.parallelism) == (None, None, ())


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "allowed"),
    [
        ("{prefill: 2, decode: 8}", "{prefill: 2}", 6, "decode", "GPUs of each decode instance"),
        ("{prefill: 2, decode: 8}", "{decode: 8}", 6, "prefill", "GPUs of each prefill instance"),
        ("prefill: 2,", "prefill: 2, tensor: 4,", 6, "tensor", "prefill and decode alone"),
        ("decode: 8}", "decode: 3}", 6, "decode", "whole instances in 2 members with 4 GPUs each"),
        ("decode: 8}", "decode: 16}", 6, "decode", "whole instances in 2 members with 4 GPUs each"),
        ("role: decode", "role: decoder", 6, "decode", "a gang with the role decode; its roles are prefill, decoder"),
        ("role: decode, members: 2, each: {gpus: 4}", "role: decode, members: 2, each: {cpus: 4}", 6, "decode",
         "whole instances"),
        ("hidden: 8192", "hidden: 8188", 7, "model.hidden", "a multiple of parallelism.decode, which is 8"),
        ("traffic: {kv", "traffic: {tensor: 1GiB, kv", 8, "traffic.tensor", "prefill, kv, decode of a service"),
        ("{prefill: 2, decode: 8}", "{tensor: 4}", 8, "traffic.kv", "a service, whose parallelism has prefill"),
        ("name: chat", "name: chat\\noverlap: {data: 0.5}", 2, "overlap", "no such field"),
    ],
)  # fmt: skip
def test_what_does_not_make_a_service_is_refused(
    old: str, new: str, line: int, field: str, allowed: str
) -> None:
    text = SERVICE.replace(old, new.replace("\\n", "\n"), 1)
    with pytest.raises(BadFields) as caught:
        read_job(text, "chat.yaml")
    found = [
        (problem.line, problem.field.removeprefix("parallelism."), problem.allowed)
        for problem in caught.value.problems
    ]
    assert any(at == line and name == field and allowed in words for at, name, words in found), (
        found
    )


def test_instances_of_which_one_is_no_multiple_of_the_other_are_refused() -> None:
    text = SERVICE.replace("prefill: 2,", "prefill: 3,").replace(
        "members: 4, each: {gpus: 2}", "members: 4, each: {gpus: 3}"
    )
    with pytest.raises(BadFields, match="a multiple or a divisor of prefill, which is 3"):
        read_job(text, "chat.yaml")
