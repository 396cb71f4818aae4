"""Amounts of resources that jobs request and gangs hold: GPUs (also by model), CPUs, memory, NICs."""

from collections.abc import Container, Iterator

from gantree.core.ledger.state import JobState
from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.request.sizes import resized, sizes_of
from gantree.planning.rightsizing.ranking import held_to
from gantree.policy.amounts import MODEL, held, held_devices, held_hosts, requested
from gantree.policy.rules import Amounts
from gantree.topology.fabric.fabric import Fabric


class JobAmounts:
    """Amounts by job, kept for each signature. They depend on the GPU models of the fabric."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._models: tuple[str, ...] = ()
        self._requested_of_signature: dict[int, Amounts] = {}
        self._least_of_signature: dict[int, Amounts] = {}
        self._held_last: tuple[Placement | None, Amounts] = (None, {})

    def use_fabric(self, fabric: Fabric, capacity: Amounts) -> None:
        """The cluster is this one from now on."""
        self._fabric, self._held_last = fabric, (None, {})
        self._models = tuple(
            name.removeprefix(MODEL) for name in capacity if name.startswith(MODEL)
        )
        self._requested_of_signature.clear()
        self._least_of_signature.clear()

    def requested(self, state: JobState) -> Amounts:
        """The request of a job as written."""
        if state.signature not in self._requested_of_signature:
            self._requested_of_signature[state.signature] = self._requested(state.spec)
        return self._requested_of_signature[state.signature]

    def requested_by(self, state: JobState, variant: Job) -> Amounts:
        """The request of a variant of a job."""
        return self.requested(state) if variant is state.spec else self._requested(variant)

    def least_requested(self, state: JobState) -> Amounts:
        """By resource, the least that any variant of a job requests: at its smallest size, on any model, in any
        shape.
        """
        least = self._least_of_signature.get(state.signature)
        if least is None:
            least = self._least_of_signature[state.signature] = self._least_requested(state)
        return least

    def on_each_model(self, state: JobState) -> Iterator[Amounts]:
        """What a job would hold if all its GPUs that may be of several models were of one, for each."""
        amounts, roles = self.requested(state), state.spec.roles
        of_one = sum(amount for name, amount in amounts.items() if name.startswith(MODEL))
        of_any = amounts.get("gpus", 0.0) - of_one
        for model in self._models if of_any > 0.0 else ():
            if any(not role.shape.models or model in role.shape.models for role in roles):
                yield {**amounts, MODEL + model: amounts.get(MODEL + model, 0.0) + of_any}

    def held(self, placement: Placement) -> Amounts:
        """What a placed gang holds."""
        if (
            self._held_last[0] is not placement
        ):  # a gang that is placed is requested for three times
            self._held_last = (placement, held(placement.members, self._model_of_node))
        return self._held_last[1]

    def held_devices(self, placement: Placement) -> tuple[tuple[str, str, float], ...]:
        """(GPU model, device, GPUs) of what a placed gang holds (`policy.amounts.held_devices`)."""
        return held_devices(placement.members, self._model_of_node)

    def held_hosts(self, placement: Placement) -> tuple[tuple[str, float, float], ...]:
        """(GPU model, cores, GiB of memory) of what a placed gang holds (`policy.amounts.held_hosts`)."""
        return held_hosts(placement.members, self._model_of_node)

    def held_by(self, state: JobState) -> Amounts:
        """What a gang holds; it must hold a place."""
        assert state.placement is not None, f"{state.job} has no place"
        return self.held(state.placement)

    def forget_all_but(self, signatures: Container[int]) -> None:
        """Forget the amounts of all other signatures."""
        for kept in (self._requested_of_signature, self._least_of_signature):
            for signature in [each for each in kept if each not in signatures]:
                del kept[signature]

    def _least_requested(self, state: JobState) -> Amounts:
        spec = state.spec
        smallest = (
            spec if spec.elastic is None else resized(spec, min((spec.members, *sizes_of(spec))))
        )
        of_variants = [
            self._requested(variant)
            for _, shape in every_shape(smallest)
            for variant in (shape, *(held_to(shape, model) for model in self._models))
        ]
        return {
            resource: min(amounts.get(resource, 0.0) for amounts in of_variants)
            for resource in of_variants[0]
        }

    def _requested(self, job: Job) -> Amounts:
        """The request of a job; if the cluster has GPUs of one model only, in that model, too."""
        amounts = requested(job)
        if len(self._models) != 1 or "gpus" not in amounts:
            return amounts
        (model,) = self._models
        if any(role.shape.models and model not in role.shape.models for role in job.roles):
            return amounts
        return {**amounts, MODEL + model: amounts["gpus"]}

    def _model_of_node(self, node: str) -> str | None:
        assert self._fabric is not None, "no cluster was observed yet"
        return self._fabric.machine_of_node(self._fabric.index_of_node[node]).gpu


def capacity_of(fabric: Fabric) -> Amounts:
    """What all nodes have together, in use or not; what is not counted is left out."""
    capacity: dict[str, float] = {}
    for node in range(len(fabric.nodes)):
        machine = fabric.machine_of_node(node)
        has = {"gpus": machine.gpus, "cpus": machine.cpus, "memory_GiB": machine.memory_GiB}
        if machine.gpu is not None:
            has[f"gpus/{machine.gpu}"] = machine.gpus
        if machine.nics_counted:
            has["nics"] = len(machine.nics)
        has.update((f"devices/{name}", count) for name, count in machine.devices)
        for resource, amount in has.items():
            if amount:
                capacity[resource] = capacity.get(resource, 0.0) + amount
    return capacity
