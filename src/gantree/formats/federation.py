"""federation.yaml: the clusters behind one front, their regions and data, and what moving data between regions costs.

name: world
choose: start                              # or cost
clusters:
  - {name: east, url: "https://east:8443", token_file: east.token, region: eu, data: [imagenet], storage: [/mnt/ckpt]}
  - {name: west, url: "https://west:8443", token_file: west.token, region: us, price_factor: 0.9}
links:
  - {between: [eu, us], USD_per_GiB: 0.02, bandwidth_GBps: 1.25}
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    Duration,
    DurationAboveZero,
    Name,
    Text,
)
from gantree.formats.validation.forms import Form, empty, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.model.federation import ChooseBy, FederatedCluster, Federation, RegionLink
from gantree.text.document import read_documents

MAX_FILE_BYTES = 1024 * 1024
CHOICES = tuple(each.value for each in ChooseBy)


class ClusterEntry(Form):
    """A cluster: where its daemon answers, and what is there."""

    name: Name
    url: Text
    token_file: Text | None = None
    region: Name
    data: list[Text] = empty(list)
    storage: list[Text] = empty(list)
    price_factor: AmountAboveZero | None = None


class LinkEntry(Form):
    """What moving data between two regions costs, both ways."""

    between: list[Name]
    USD_per_GiB: Amount | None = None
    bandwidth_GBps: AmountAboveZero | None = None


class FederationForm(Form):
    """federation.yaml."""

    name: Name
    choose: Text | None = None
    lease: DurationAboveZero | None = None
    margin: DurationAboveZero | None = None
    heartbeat: DurationAboveZero | None = None
    lost_after: DurationAboveZero | None = None
    move_waiting: Duration | None = None
    clusters: list[ClusterEntry]
    links: list[LinkEntry] = empty(list)


def read_federation(text: str, source: str, folder: Path) -> Federation:
    """Read a federation file; paths of tokens start in folder. source names it in errors. Raises BadInput."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(FederationForm, documents, problems)
    form = read_form(FederationForm, document, problems) if document else None
    if form is not None and not problems:
        problems += [
            *_of_clusters(form),
            *_of_tokens(form, folder),
            *_of_links(form),
            *_of_times(form),
        ]
    refuse(problems, source)
    assert form is not None
    return _federation(form, folder)


def _of_clusters(form: FederationForm) -> Iterator[Problem]:
    if not form.clusters:
        yield form.problem("clusters", "none", "at least one cluster")
    seen: set[str] = set()
    for cluster in form.clusters:
        if cluster.name in seen:
            yield cluster.problem("name", f"{cluster.name} again", "each cluster once")
        seen.add(cluster.name)
        if not cluster.url.startswith(("http://", "https://")):
            allowed = "a URL such as https://host:8443, or several with commas between them"
            yield cluster.problem("url", f"`{cluster.url}`", allowed)
        for path in cluster.storage:
            if not path.startswith("/"):
                yield cluster.problem("storage", f"`{path}`", "absolute paths")
    if form.choose is not None and form.choose not in CHOICES:
        yield form.problem("choose", f"`{form.choose}`", f"one of {', '.join(CHOICES)}")


def _of_links(form: FederationForm) -> Iterator[Problem]:
    regions = {cluster.region for cluster in form.clusters}
    for link in form.links:
        if len(link.between) != 2 or link.between[0] == link.between[1]:
            yield link.problem("between", ", ".join(link.between) or "nothing", "two regions")
        for region in link.between:
            if region not in regions:
                allowed = f"regions of clusters: {', '.join(sorted(regions))}"
                yield link.problem("between", f"`{region}`", allowed)


def _of_times(form: FederationForm) -> Iterator[Problem]:
    told = _federation_times(form)
    if told.heartbeat_s * 4 > told.lease_s:
        yield form.problem(
            "lease",
            f"{told.lease_s:g}s",
            f"at least four times the heartbeat, {told.heartbeat_s * 4:g}s",
        )
    if not told.heartbeat_s * 2 <= told.lost_after_s <= told.lease_s:
        yield form.problem(
            "lost_after",
            f"{told.lost_after_s:g}s",
            f"from twice the heartbeat, {told.heartbeat_s * 2:g}s, to the lease, {told.lease_s:g}s",
        )


def _federation_times(form: FederationForm) -> Federation:
    """A federation with the times of the file, and no clusters."""
    default = Federation(form.name, ())
    return replace(
        default,
        lease_s=form.lease or default.lease_s,
        margin_s=form.margin or default.margin_s,
        heartbeat_s=form.heartbeat or default.heartbeat_s,
        lost_after_s=form.lost_after or default.lost_after_s,
        move_waiting_s=default.move_waiting_s if form.move_waiting is None else form.move_waiting,
    )


def _federation(form: FederationForm, folder: Path) -> Federation:
    return replace(
        _federation_times(form),
        clusters=tuple(_cluster(each, folder) for each in form.clusters),
        links=tuple(link for each in form.links for link in _links(each)),
        choose=ChooseBy(form.choose or ChooseBy.START.value),
    )


def _cluster(form: ClusterEntry, folder: Path) -> FederatedCluster:
    return FederatedCluster(
        form.name,
        form.url,
        None if form.token_file is None else _token(folder / form.token_file),
        form.region,
        frozenset(form.data),
        tuple(form.storage),
        form.price_factor or 1.0,
    )


def _of_tokens(form: FederationForm, folder: Path) -> Iterator[Problem]:
    for cluster in form.clusters:
        if cluster.token_file is None:
            continue
        try:
            _token(folder / cluster.token_file)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a token"
            found = f"{folder / cluster.token_file}: {reason}"
            yield cluster.problem("token_file", found, "a file with the token of the cluster")


def _token(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _links(form: LinkEntry) -> Iterator[RegionLink]:
    first, second = form.between
    terms = (form.USD_per_GiB or 0.0, form.bandwidth_GBps or 1.0)
    yield RegionLink(first, second, *terms)
    yield RegionLink(second, first, *terms)
