"""Index of claims and of the devices that are allocated to them, on the server or by writes in flight.

Plans count from the moment they are made until the claim is seen allocated, or the writing of them has failed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import Allocation, ResourceClaim, Result
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.devices.device import Counters, DeviceKey, totals
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

MAX_CONSUMERS = 256
"""A claim is for so many pods at most, by the API."""
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
NAME_FIELD = "metadata.name"


class NotReady(Exception):
    """A pod's claims are not all there; the text says what is missing."""


class InUse(Exception):
    """A claim is there, and not for this pod as long as others have it; the text says how."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Devices that are to be a claim's, with the share of each: for which pod, on which node."""

    claim: Key
    pod: str
    node: str
    devices: Mapping[DeviceKey, Counters]


class ClaimIndex:
    """Claims by key, pods by claim, holders by device and node."""

    def __init__(self) -> None:
        self.claims: dict[Key, ResourceClaim] = {}
        self.plans: dict[str, Plan] = {}
        """By the claim's uid."""
        self._replanned: dict[Key, None] = {}
        self._held: dict[str, Mapping[DeviceKey, Counters]] = {}
        """Devices that a claim has by the server's word, by its uid."""
        self._holders: dict[DeviceKey, dict[str, Counters]] = {}
        self._consumers: dict[str, tuple[str, ...]] = {}
        self._claims_of_consumer: dict[str, dict[str, None]] = {}

    def update(self, key: Key, after: ResourceClaim | None) -> list[DeviceKey]:
        """A claim was added or has changed; None: it is gone. Gives the devices that it had or has."""
        before = self.claims.pop(key, None)
        touched: list[DeviceKey] = []
        if before is not None:
            touched += self._put(before.metadata.uid, {})
            self._reserve(before.metadata.uid, ())
        if after is not None:
            self.claims[key] = after
            uid = after.metadata.uid
            self._reserve(uid, tuple(each.uid for each in after.status.reserved_for))
            touched += self._put(uid, devices_in(after.status.allocation))
            if after.status.allocation is not None:
                touched += [*self.drop(uid), *self.drop("/".join(key))]
        elif before is not None:
            touched += self.drop(before.metadata.uid)
        return touched

    def plan(self, uid: str, plan: Plan) -> None:
        """These devices are to be a claim's."""
        self.plans[uid] = plan
        self._replanned[plan.claim] = None
        for device, share in plan.devices.items():
            self._holders.setdefault(device, {})[uid] = share

    def drop(self, uid: str) -> tuple[DeviceKey, ...]:
        """A plan is carried out, or given up. Gives the devices that it was for."""
        plan = self.plans.pop(uid, None)
        devices = () if plan is None else tuple(plan.devices)
        if plan is not None:
            self._replanned[plan.claim] = None
        for device in devices:
            if device not in self._held.get(uid, ()):
                self._let_go(device, uid)
        return devices

    def pop_replanned(self) -> list[Key]:
        """The claims for which plans were made or given up since the last call."""
        found = list(self._replanned)
        self._replanned.clear()
        return found

    def check_free(self, claim: ResourceClaim, pod: str) -> None:
        """Raise InUse where a claim cannot be this pod's for now."""
        name, uid = claim.metadata.name, claim.metadata.uid
        plan, consumers = self.plans.get(uid), self._consumers.get(uid, ())
        if plan is not None and plan.pod != pod:
            raise InUse(f"claim {name!r} is being allocated for another pod")
        if len(consumers) >= MAX_CONSUMERS and pod not in consumers:
            raise InUse(
                f"claim {name!r} is reserved for {len(consumers)} pods, and can be for no more"
            )

    def holders(self, device: DeviceKey) -> Mapping[str, Counters]:
        """The uids of the claims that have a device, or are to have it, and the share that each has."""
        return self._holders.get(device, {})

    def held(self, devices: Iterable[DeviceKey]) -> dict[DeviceKey, Counters]:
        """Return those of the devices that are allocated or about to be, and how much of each."""
        return totals(
            (device, share)
            for device in devices
            for share in self._holders.get(device, {}).values()
        )

    def has_devices(self, pods: Collection[str]) -> bool:
        """Whether a claim has devices that is reserved for some of these pods, and for no other."""
        return any(
            uid in self._held and all(user in pods for user in self._consumers[uid])
            for pod in pods
            for uid in self._claims_of_consumer.get(pod, ())
        )

    def consumers(self, uid: str) -> tuple[str, ...]:
        """Return the uids of pods for which a claim is reserved, or about to be."""
        plan = self.plans.get(uid)
        return self._consumers.get(uid, ()) if plan is None else (plan.pod,)

    def claims_of(self, pod: Pod, *, with_special: bool = False) -> dict[str, ResourceClaim]:
        """The claims of a pod by its own names for them; with_special: also that for extended resources. Raises
        NotReady.
        """
        special = pod.status.extended_resource_claim_status
        made = {each.name: each for each in pod.status.resource_claim_statuses}
        found: dict[str, ResourceClaim] = {}
        for wanted in pod.spec.resource_claims:
            name = wanted.resource_claim_name
            if name is None:
                status = made.get(wanted.name)
                if status is None:
                    template = wanted.resource_claim_template_name
                    raise NotReady(f"no claim was made yet of its template {template!r}")
                name = status.resource_claim_name
            if name is not None:  # a status without a name: the pod needs none
                found[wanted.name] = self._claim(
                    pod, name, is_own=wanted.resource_claim_name is None
                )
        if with_special and special is not None:
            found[""] = self._claim(pod, special.resource_claim_name, is_own=True)
        return found

    def _claim(self, pod: Pod, name: str, *, is_own: bool) -> ResourceClaim:
        claim = self.claims.get((pod.metadata.namespace, name))
        if claim is None:
            raise NotReady(f"there is no claim {name!r}")
        if claim.metadata.deletion_timestamp is not None:
            raise NotReady(f"claim {name!r} is being deleted")
        owners = [each.uid for each in claim.metadata.owner_references]
        if is_own and pod.metadata.uid not in owners:
            raise NotReady(f"claim {name!r} was made for another pod")
        return claim

    def _reserve(self, uid: str, pods: tuple[str, ...]) -> None:
        for pod in self._consumers.pop(uid, ()):
            claims = self._claims_of_consumer[pod]
            del claims[uid]
            if not claims:
                del self._claims_of_consumer[pod]
        if pods:
            self._consumers[uid] = pods
        for pod in pods:
            self._claims_of_consumer.setdefault(pod, {})[uid] = None

    def _put(self, uid: str, devices: Mapping[DeviceKey, Counters]) -> list[DeviceKey]:
        before = self._held.pop(uid, {})
        planned = self.plans[uid].devices if uid in self.plans else {}
        for device in before:
            if device not in planned:
                self._let_go(device, uid)
        if devices:
            self._held[uid] = devices
        for device, share in devices.items():
            self._holders.setdefault(device, {})[uid] = share
        return [*before, *devices]

    def _let_go(self, device: DeviceKey, uid: str) -> None:
        holders = self._holders.get(device, {})
        holders.pop(uid, None)
        if not holders:
            self._holders.pop(device, None)


def devices_in(allocation: Allocation | None) -> dict[DeviceKey, Counters]:
    """Return the devices of an allocation, and the share of each; admin access does not take devices."""
    results = allocation.devices.results if allocation else ()
    return totals(
        ((each.driver, each.pool, each.device), _share_in(each))
        for each in results
        if not each.admin_access
    )


def _share_in(told: Result) -> Counters:
    return tuple(
        (name, quantity(str(text)) or 0.0) for name, text in told.consumed_capacity.items()
    )


def is_for_pod_alone(claim: ResourceClaim, uid: str) -> bool:
    """Return whether a claim is allocated for one pod alone, so it is deallocated if that pod does not start."""
    return tuple(each.uid for each in claim.status.reserved_for) == (uid,)
