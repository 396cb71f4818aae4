"""Waits for devices that are attached or set up once they are allocated, before the pods of their claims are bound.

A device may name conditions in its slice (`bindingConditions`, `bindingFailureConditions`); whoever sets it up writes
them into the claim's status. What is awaited is read from the claim's own allocation, so a restart waits on.
"""

import asyncio

from gantree.executors.kubernetes.apiserver.client import ApiError, Client
from gantree.executors.kubernetes.apiserver.device_objects import ResourceClaim, Result
from gantree.model.errors import Unreachable

TIMEOUT_S = 600.0
"""As the default scheduler's."""
LOOKS_EVERY_S = 1.0


def is_awaited(claim: ResourceClaim) -> bool:
    """Whether a claim has devices with conditions."""
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return any(each.binding_conditions for each in results)


async def until_ready(client: Client, path: str) -> str:
    """Wait until the devices of a claim are ready; return "" or why they are not."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    trouble = ""
    while asyncio.get_running_loop().time() < deadline:
        try:
            claim = await client.get(path, ResourceClaim)
            found = _why_not_ready(claim)
            if found is None or found[0]:
                return "" if found is None else found[1]
            trouble = found[1]
        except ApiError as error:
            if error.status == 404:
                return str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        await asyncio.sleep(LOOKS_EVERY_S)
    return f"{trouble} for {TIMEOUT_S:g} s"


def _why_not_ready(claim: ResourceClaim) -> tuple[bool, str] | None:
    """(whether it has failed, why it is not ready); None if it is."""
    name = claim.metadata.name
    if claim.status.allocation is None:
        return True, f"claim {name!r} was given back"
    for result in claim.status.allocation.devices.results:
        true = _true_conditions(claim, result)
        for failed in result.binding_failure_conditions:
            if failed in true:
                return True, f"device {result.device} of claim {name!r} is {failed}"
        for awaited in result.binding_conditions:
            if awaited not in true:
                return False, f"device {result.device} of claim {name!r} is not {awaited}"
    return None


def _true_conditions(claim: ResourceClaim, result: Result) -> frozenset[str]:
    return frozenset(
        condition.type
        for each in claim.status.devices
        if (each.driver, each.pool, each.device, each.share_id)
        == (result.driver, result.pool, result.device, result.share_id)
        for condition in each.conditions
        if condition.status == "True"
    )
