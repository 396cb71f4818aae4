"""The output of `gantree cost` for people: the placement, one collective, prices, a row per kind of traffic."""

from collections.abc import Iterator
from typing import Any

from gantree.cli.output.figures import rate_text, size_text, time_text
from gantree.cli.output.prices import price_lines
from gantree.cli.output.printing import columns
from gantree.text.words import plural
from gantree.topology.cost.cost import FlowCost, Price, Step


def cost_lines(answer: dict[str, Any], price: Price, step: Step | None) -> Iterator[str]:
    """Lines of the answer as `gantree cost --json` prints it, and of the figures it was made from."""
    domain = f"{answer['domain']['tier']} {answer['domain']['name']}".rstrip()
    gpus = f"{plural(answer['gpus'], 'GPU')} on {plural(answer['nodes'], 'node')}"
    yield f"{answer['job']}: {gpus}, within {domain}"
    crossings = ", ".join(f"{tier} {count}" for tier, count in answer["crossings"].items())
    yield f"ring hops between members that leave a domain: {crossings}"
    collective = answer["collective"]
    yield f"{collective['name']} of {size_text(collective['bytes'])} over all: {_priced(price)}"
    if answer["measured"]:
        yield from _measured_lines(answer["measured"])
    yield from price_lines(answer["prices"])
    if step is None:
        yield "no step time: the job file gives neither `model` nor `traffic`"
    else:
        yield _step_line(step)
    assumed = (*answer["assumed"], *(step.assumed if step else ()))
    if assumed:
        yield f"assumed: {'; '.join(assumed)}"
    if step is not None:
        yield from _table(step)


def _measured_lines(measured: dict[str, Any]) -> Iterator[str]:
    where = f"{measured['host']}, {measured['date']}, {measured['backend']}"
    yield f"links as measured on {where}: {', '.join(measured['links']) or 'none'}"
    if measured["of_no_link_here"]:
        idle = ", ".join(measured["of_no_link_here"])
        yield f"measured, but not in this cluster: {idle}"


def _priced(price: Price) -> str:
    if not price.limit:
        return "nothing to send"
    rate = f"{rate_text(price.busbw_GBps)} busbw"
    return f"{time_text(price.seconds)}, {rate}, {price.algorithm}, bound by {price.limit}"


def _step_line(step: Step) -> str:
    hidden_s = step.comm_s - step.exposed_s
    return (
        f"step {time_text(step.step_s)}: computing {time_text(step.compute_s)}, bubble "
        f"{time_text(step.bubble_s)}, traffic {time_text(step.exposed_s)} and {time_text(hidden_s)} hidden"
    )


def _table(step: Step) -> Iterator[str]:
    head = ("AXIS", "GROUPS", "WITHIN", "DOMAINS", "COLLECTIVE", "SIZE", "CALLS",
            "TIME", "EXPOSED", "BUSBW", "BOUND BY")  # fmt: skip
    yield columns(head, (_row(flow) for flow in step.flows))


def _row(flow: FlowCost) -> tuple[str, ...]:
    spread = [f"{tier} {count}" for tier, count in flow.domains[1:] if count > 1]
    return (
        flow.axis,
        f"{flow.groups} x {flow.group_size}",
        flow.within,
        ", ".join(spread) or "-",
        flow.collective,
        size_text(flow.size_bytes),
        str(flow.calls),
        time_text(flow.seconds),
        time_text(flow.exposed_s),
        rate_text(flow.price.busbw_GBps),
        flow.price.limit,
    )
