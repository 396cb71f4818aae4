"""Names of models that several services have: routers send the requests for one to the service that came first."""

from collections.abc import Iterable, Mapping

from gantree.core.ledger.ledger import Ledger
from gantree.model.services import ServiceSpec


def models_of(spec: ServiceSpec) -> tuple[str, ...]:
    """The names that clients give as `model` for a service."""
    return spec.routing.models or (spec.name,)


def taken_models(ledger: Ledger, spec: ServiceSpec) -> dict[str, str]:
    """The models of a service whose requests go to another live one, and which; of a new service as if it came last."""
    owners = dict[str, str]()
    for service in ledger.services.values():
        if service.is_live and service.service == spec.name:
            break
        if service.is_live:
            _add(owners, service.spec)
    return _shared(owners, spec)


def warnings_of_models(ledger: Ledger, specs: Iterable[ServiceSpec]) -> tuple[str, ...]:
    """Sentences on services that are submitted together and will not get the requests for a model of theirs."""
    before, found = dict[str, str](), list[str]()
    for spec in specs:
        taken = {**_shared(before, spec), **taken_models(ledger, spec)}
        found += [f"{spec.name}: {sentence}" for sentence in sentences(taken)]
        _add(before, spec)
    return tuple(found)


def sentences(taken: Mapping[str, str]) -> list[str]:
    """What `taken_models` found, in words."""
    return [
        f"requests for the model {model} go to service {owner}, which had it first, until that ends"
        for model, owner in taken.items()
    ]


def _shared(owners: Mapping[str, str], spec: ServiceSpec) -> dict[str, str]:
    return {
        model: owners[model]
        for model in models_of(spec)
        if owners.get(model, spec.name) != spec.name
    }


def _add(owners: dict[str, str], spec: ServiceSpec) -> None:
    for model in models_of(spec):
        owners.setdefault(model, spec.name)
