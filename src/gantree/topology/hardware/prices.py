"""List prices: what an hour of one GPU costs in US dollars, on demand and spot, each with its date and source.

The catalogue's figures are single quotations, no averages; where several were found, that of a provider who names the
region. They are old the day after, and a site overrides them by file (`formats.prices`). A GPU for which no dated
quotation was found has none: P100, V100, T4, A10, A16, A30, L4, L40, H20, the TPUs and AMD's others among them.

Where the numbers are from. AWS and Azure: on-demand list prices as datareceipts/data-receipts (109-gpu-pricing)
retrieved them from the providers' price APIs. Google: as tgarg01/silybench-data worked them out of the billing
catalogue (GPU, vCPUs and memory of a3-highgpu-1g). Hyperstack, Akash and OpenRelay: their price pages as
api-evangelist transcribed them; Mithril likewise, spot averages of seven days over 8 GPUs. RunPod (Secure Cloud):
the data set privum/ai-compute-prices. Verda: lanternworks/gpu-cloud-prices. DigitalOcean: its API as
tokenwatt/gpu-cloud-prices recorded it. GB200: half of what spheron.network asked for a superchip of two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gantree.topology.hardware.gpu_models import gpu_model

Market = Literal["on_demand", "spot", "reserved", "owned"]
"""How GPUs are bought: kept as long as one likes, taken back when others pay more, for a term, or one's own."""
LIST_MARKETS: tuple[Market, ...] = ("on_demand", "spot")
"""Those of which there are list prices."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What one provider asked for an hour of one GPU, in US dollars. region is "" where the source names none."""

    gpu: str
    market: Market
    USD_per_hour: float
    date: str
    source: str
    region: str = ""


_AWS, _AZURE = "aws.amazon.com/ec2/pricing", "prices.azure.com"
_GCP = "cloud.google.com billing catalogue"
_HYPERSTACK, _RUNPOD = "hyperstack.cloud/gpu-pricing", "runpod.io/pricing"
_AKASH, _VERDA = "akash.network/pricing/gpus", "verda.com/pricing"
_MITHRIL, _OPENRELAY = "mithril.ai/pricing", "openrelay.inc/gpu-pricing-calculator"

_ALL = (
    Quote("A100-40GB", "on_demand", 2.7447, "2026-11-09", _AWS, "us-east-1"),
    Quote("A100-80GB", "on_demand", 3.4309, "2026-11-09", _AWS, "us-east-1"),
    Quote("H100-80GB", "on_demand", 6.88, "2026-11-09", _AWS, "us-east-1"),
    Quote("H100-80GB", "spot", 6.571, "2026-09-26", _GCP, "us-central1"),
    Quote("H100-94GB", "on_demand", 6.98, "2026-11-09", _AZURE, "eastus"),
    Quote("H200-141GB", "on_demand", 3.99, "2026-08-26", _HYPERSTACK),
    Quote("H200-141GB", "spot", 2.1575, "2026-09-20", _MITHRIL),
    Quote("B200-180GB", "on_demand", 6.0, "2026-08-26", _HYPERSTACK),
    Quote("B300-288GB", "on_demand", 7.4, "2026-08-26", _HYPERSTACK),
    Quote("GB200-186GB", "on_demand", 4.54, "2026-03-17", "spheron.network"),
    Quote("A40-48GB", "on_demand", 0.44, "2026-08-19", _RUNPOD),
    Quote("A6000-48GB", "on_demand", 0.82, "2026-10-29", _VERDA),
    Quote("A6000-48GB", "spot", 0.41, "2026-10-29", _VERDA),
    Quote("L40S-48GB", "spot", 0.941, "2026-10-29", _VERDA),
    Quote("RTX3090-24GB", "on_demand", 0.18, "2026-09-20", _OPENRELAY),
    Quote("RTX4090-24GB", "on_demand", 0.29, "2026-09-20", _OPENRELAY),
    Quote("RTX8000-48GB", "on_demand", 0.21, "2026-09-20", _AKASH),
    Quote("RTXPRO6000-96GB", "on_demand", 2.04, "2026-09-20", _AKASH),
    Quote("MI300X-192GB", "on_demand", 2.59, "2026-10-08", "digitalocean.com"),
)


class PriceList:
    """Quotes by GPU model. What a site says of a GPU replaces all that the catalogue says of it."""

    def __init__(self, quotes: Iterable[Quote]) -> None:
        quotes_of_gpu: dict[str, dict[Market, Quote]] = {}
        for quote in quotes:
            quotes_of_gpu.setdefault(_key(quote.gpu), {})[quote.market] = quote
        self._quotes: Mapping[str, Mapping[Market, Quote]] = MappingProxyType(quotes_of_gpu)

    def __reduce__(self) -> tuple[type["PriceList"], tuple[tuple[Quote, ...]]]:
        return PriceList, (self.quotes,)

    @property
    def quotes(self) -> tuple[Quote, ...]:
        """All quotes, a GPU's beside each other."""
        return tuple(quote for markets in self._quotes.values() for quote in markets.values())

    def quote(self, gpu: str | None, market: Market = "on_demand") -> Quote | None:
        """Return the quote for a GPU model, None where there is none: a price is never guessed from another."""
        return self._quotes.get(_key(gpu or ""), {}).get(market)

    def replaced_by(self, quotes: Iterable[Quote]) -> "PriceList":
        """Return the list in which these quotes stand in place of all there are for their GPUs."""
        new = tuple(quotes)
        replaced = {_key(quote.gpu) for quote in new}
        kept = (quote for quote in self.quotes if _key(quote.gpu) not in replaced)
        return PriceList((*kept, *new))


def _key(gpu: str) -> str:
    """Names of one model are one key, however they are written."""
    model = gpu_model(gpu)
    return model.name if model and model.memory_GiB else gpu


LIST_PRICES = PriceList(_ALL)
"""The catalogue's prices."""
