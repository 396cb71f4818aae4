"""What the up-links of switches carry, from what a fabric's manager says of its ports.

Read are the answer of NVIDIA UFM to `GET /ufmRest/resources/ports`, and the print of `ibnetdiscover`; both by the
parsers that import topologies, so a domain is what these say it is, and a cable that is down is not counted. Domains
are told by the hosts below them, not by names: a cluster file may call them otherwise.
"""

from typing import NamedTuple

from gantree.model.errors import BadInput
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks import ibnetdiscover, ufm

SOURCE = "the fabric's ports"


class Uplinks(NamedTuple):
    """The up-links of a domain that are up: the domain's path in the source, and GB/s of all together, one way."""

    path: str
    GBps: float


def uplinks_in(text: str) -> dict[str, dict[int, Uplinks]]:
    """Host -> number of the tier, 0 for the narrowest -> the up-links of the host's domain there.

    Raises BadInput for a text that is neither, or half of one: a cable that is not told of would count as out.
    """
    reading = _reading(text)
    parts = (ibnetdiscover.WAS_CUT, ufm.NOT_GIVEN)
    missing = [each for each in reading.warnings if any(part in each for part in parts)]
    if missing:
        raise BadInput(missing[0])
    GBps = {(facts.tier, facts.name): facts.uplink_GBps or 0.0 for facts in reading.domains}
    narrowest_first = tuple(reversed(reading.tiers))
    found: dict[str, dict[int, Uplinks]] = {}
    for node in reading.nodes:
        paths = ["/".join(node.at[: len(node.at) - number]) for number in range(len(node.at))]
        found[node.name] = {
            number: Uplinks(path, GBps.get((tier, path), 0.0))
            for number, (tier, path) in enumerate(zip(narrowest_first, paths, strict=True))
        }
    return found


def _reading(text: str) -> FabricReading:
    if text.lstrip()[:1] in ("[", "{"):
        return ufm.parse([(text, SOURCE)])
    return ibnetdiscover.parse(text, SOURCE)
