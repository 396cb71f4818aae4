"""The simulations of a sweep, each with all that it reads, so that it runs in any process.

The key of one is a digest of all that its result depends on; what is finished with the same key is not run again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gantree import __version__
from gantree.formats import read_cluster
from gantree.formats.policy.form import PRESET_NAMES
from gantree.formats.sweep import Override, Sweep, policy_with, short_name
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.placements import FABRIC_TIER
from gantree.sim.inputs import digest_of
from gantree.sim.running.model import RunningModel
from gantree.sim.running.reader import PRESET_NAMES as PRESETS_OF_RUNNING
from gantree.sim.running.reader import check_tiers, preset, read_running

KEY_DIGITS = 16
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One simulation. Texts are those of the files; the trace is read where it runs. name is its directory's.

    running_text is None for a preset of the model of running, and where there is no model.
    """

    name: str
    key: str
    cluster: str
    cluster_text: str
    trace: str
    trace_file: Path
    policy: str
    policy_text: str
    override: Override
    running: str | None
    running_text: str | None
    seed: int | None
    limit: int | None
    overheads: tuple[float, float, float]

    @property
    def policy_name(self) -> str:
        """The policy with its override, as results name it."""
        name = short_name(self.policy)
        return f"{name}+{self.override.name}" if self.override.name else name


def plan_of(sweep: Sweep, directory: Path) -> list[PlannedRun]:
    """All simulations in the order of the grid; files are relative to a directory.

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
    running = _running_text(sweep.running, directory)
    for file, text in texts.items():
        running_model(sweep.running, running, read_cluster(text, file))
    files = _Files(texts, traces, policies, running)
    return [
        _planned(sweep, directory, files, (cluster, trace, policy, override, seed))
        for cluster in sweep.clusters
        for trace in sweep.traces
        for policy in sweep.policies
        for override in sweep.overrides
        for seed in sweep.seeds
    ]


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of a sweep hold, by how it names them: texts, and of traces a digest."""

    clusters: Mapping[str, str]
    traces: Mapping[str, str]
    policies: Mapping[str, str]
    running: str | None


def _planned(
    sweep: Sweep,
    directory: Path,
    files: _Files,
    at: tuple[str, str, str, Override, int | None],
) -> PlannedRun:
    cluster, trace, policy, override, seed = at
    words = [short_name(cluster), short_name(trace), short_name(policy), override.name]
    words.append("" if seed is None else f"seed-{seed}")
    overheads = (sweep.start_s, sweep.stop_s, sweep.save_s)
    key = digest_of(
        (
            *(__version__, files.clusters[cluster], files.traces[trace], files.policies[policy]),
            *(override, sweep.running, files.running, seed, sweep.limit, overheads),
        )
    )
    return PlannedRun(
        name="--".join(word for word in words if word),
        key=key,
        cluster=cluster,
        cluster_text=files.clusters[cluster],
        trace=trace,
        trace_file=(directory / trace).absolute(),
        policy=policy,
        policy_text=files.policies[policy],
        override=override,
        running=sweep.running,
        running_text=files.running,
        seed=seed,
        limit=sweep.limit,
        overheads=overheads,
    )


def running_model(name: str | None, text: str | None, cluster: Cluster) -> RunningModel:
    """The model of running of that name, or of a file's text, for a cluster; all off without a name.

    Raises BadFields for what is wrong in the text, BadInput for tiers that the cluster has not.
    """
    if name is None:
        return RunningModel()
    model = preset(name) if text is None else read_running(text, name)
    check_tiers(model, (FABRIC_TIER, *cluster.tiers))
    return model


def _running_text(name: str | None, directory: Path) -> str | None:
    return None if name is None or name in PRESETS_OF_RUNNING else _text(directory / name)


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
