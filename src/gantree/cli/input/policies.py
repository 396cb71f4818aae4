"""The argument of --policy: a preset or a file, checked against a cluster."""

from gantree.cli.input.files import read_policy_text, source_of
from gantree.control.requests.policy_text import PolicyText
from gantree.formats import read_policy
from gantree.formats.policy.locations import PolicyPlaces, places_of
from gantree.formats.policy.reader import PRESET_NAMES, preset
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric


def policy_of(word: str | None) -> Policy:
    """The preset of that name, else the policy in that file; the default preset for None.

    Raises BadInput for a file that cannot be read and is no preset either, BadFields for what is wrong in it.
    """
    return policy_and_places(word)[0]


def policy_on(word: str | None, site: Cluster | Fabric) -> Policy:
    """As `policy_of`, for a cluster. Raises BadInput for cells and guarantees that it cannot hold, too."""
    policy, places = policy_and_places(word)
    if policy.queues:
        from gantree.control.requests.policy_fit import check_site  # noqa: PLC0415 - half of what `gantree place` would import

        fabric = site if isinstance(site, Fabric) else Fabric.build(site)
        check_site(policy, fabric, places)
    return policy


def policy_and_places(word: str | None) -> tuple[Policy, PolicyPlaces]:
    """As `policy_of`, with where the file says what."""
    policy, places, _ = policy_named(word)
    return policy, places


def policy_named(word: str | None) -> tuple[Policy, PolicyPlaces, PolicyText | None]:
    """As `policy_and_places`, with the text as it is to be kept; None where nothing was named."""
    name = PRESET_NAMES[0] if word is None else word
    if name not in PRESET_NAMES:
        return _read(name)
    text = None if word is None else PolicyText(f"preset: {name}\n", f"preset {name}")
    return preset(name), PolicyPlaces(f"preset {name}"), text


def _read(word: str) -> tuple[Policy, PolicyPlaces, PolicyText]:
    try:
        text = read_policy_text(word)
    except BadInput as error:
        raise BadInput(f"--policy: {error}") from None
    source = source_of(word)
    return read_policy(text, source), places_of(text, source), PolicyText(text, source)
