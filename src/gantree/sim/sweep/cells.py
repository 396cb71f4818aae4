"""The cells of a sweep: one simulation each, with all that it reads, so that it runs in any process.

The key of a cell is a digest of all that its result depends on; a finished cell with the same key is not run again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gantree import __version__
from gantree.formats import read_cluster
from gantree.formats.policy.form import PRESET_NAMES
from gantree.formats.sweep import Override, Sweep, policy_with, short_name
from gantree.model.errors import BadInput
from gantree.sim.inputs import digest_of

KEY_DIGITS = 16
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation. Texts are those of the files; the trace is read where the cell runs. name is its directory's."""

    name: str
    key: str
    cluster: str
    cluster_text: str
    trace: str
    trace_file: Path
    policy: str
    policy_text: str
    override: Override
    limit: int | None
    overheads: tuple[float, float, float]

    @property
    def policy_name(self) -> str:
        """The policy with its override, as results name it."""
        name = short_name(self.policy)
        return f"{name}+{self.override.name}" if self.override.name else name


def cells_of(sweep: Sweep, directory: Path) -> list[Cell]:
    """All cells in the order of the grid; files are relative to a directory.

    Raises BadInput and BadFields for files that cannot be read, and for overrides that do not go with a policy.
    """
    texts = {file: _text(directory / file) for file in sweep.clusters}
    for file, text in texts.items():
        read_cluster(text, file)
    policies = {file: _policy_text(directory, file) for file in sweep.policies}
    for file, text in policies.items():
        for override in sweep.overrides:
            policy_with(text, file, override)
    traces = {file: _digest_of_file(directory / file) for file in sweep.traces}
    return [
        _cell(sweep, directory, texts, traces, policies, (cluster, trace, policy, override))
        for cluster in sweep.clusters
        for trace in sweep.traces
        for policy in sweep.policies
        for override in sweep.overrides
    ]


def _cell(
    sweep: Sweep,
    directory: Path,
    texts: Mapping[str, str],
    traces: Mapping[str, str],
    policies: Mapping[str, str],
    at: tuple[str, str, str, Override],
) -> Cell:
    cluster, trace, policy, override = at
    words = [short_name(cluster), short_name(trace), short_name(policy), override.name]
    overheads = (sweep.start_s, sweep.stop_s, sweep.save_s)
    key = digest_of(
        (
            *(__version__, texts[cluster], traces[trace], policies[policy], override),
            *(sweep.limit, overheads),
        )
    )
    return Cell(
        name="--".join(word for word in words if word),
        key=key,
        cluster=cluster,
        cluster_text=texts[cluster],
        trace=trace,
        trace_file=(directory / trace).absolute(),
        policy=policy,
        policy_text=policies[policy],
        override=override,
        limit=sweep.limit,
        overheads=overheads,
    )


def _policy_text(directory: Path, file: str) -> str:
    return f"preset: {file}\n" if file in PRESET_NAMES else _text(directory / file)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start})") from None


def _digest_of_file(path: Path) -> str:
    digest = sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return digest.hexdigest()
