"""`gantree kubernetes --partition-nodes`: what the options take, and what operators see of such a node."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Program
from support.pods import PodStage

Gantree = Callable[..., Any]
WITHIN_S = 300.0
CONFIGS = """
mig-configs:
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
"""
NEED = "--partition-nodes needs --mig-configs or --gpu-config-profiles, and these need it"
MIXED: dict[str, Any] = {
    "nvidia_com__mig_capable": "true",
    "nvidia_com__mig_strategy": "mixed",
    "nvidia_com__gpu_count": "8",
    "pool": "mig",
}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--partition-nodes", "pool=mig"), NEED),
        (("--mig-configs", "FILE"), NEED),
        (("--gpu-config-profiles", "FILE"), NEED),
        (("--partition-nodes", "pool=amd", "--gpu-config-profiles", "BAD"), "bad.yaml:1: gpu-config-profiles: found"),
        (("--partition-nodes", "pool", "--mig-configs", "FILE"), "--partition-nodes: found 'pool'; allowed: KEY=VALUE"),
        (("--partition-nodes", "pool=mig", "--mig-configs", "BAD"), "bad.yaml:1: mig-configs: found nothing"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_clear_are_refused(
    gantree: Gantree, tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    file, bad = tmp_path / "configs.yaml", tmp_path / "bad.yaml"
    file.write_text(CONFIGS)
    bad.write_text("version: v1\n")
    named = [{"FILE": str(file), "BAD": str(bad)}.get(word, word) for word in words]
    state = tmp_path / "state"
    told = gantree("kubernetes", "--api-server", "http://127.0.0.1:9", "--state", state, *named)
    assert told.code != 0
    assert complaint in told.err
    assert not state.exists()


def test_nodes_and_why_name_the_config_and_how_far_it_is(gantree: Gantree, tmp_path: Path) -> None:
    file, state = tmp_path / "configs.yaml", tmp_path / "state"
    file.write_text(CONFIGS)
    with PodStage(tmp_path / "unused") as stage:
        stage.nodes("n0", **MIXED)
        limits = {"nvidia.com/mig-1g.10gb": "1"}
        containers = [{"name": "main", "image": "train", "resources": {"limits": limits}}]
        server = ("--api-server", stage.running.url, "--state", str(state), "--name", "a")
        options = ("--partition-nodes", "pool=mig", "--mig-configs", str(file))
        with Program("kubernetes", *server, *options) as running:
            running.says("ready: cluster kubernetes")
            stage.pod("p0", spec={"containers": containers})
            deadline = time.monotonic() + WITHIN_S
            asked = "node n0 gets MIG config all-1g.10gb (the manager has not answered)."
            while asked not in (told := gantree("why", "default/p0", "--state", state).out):
                assert time.monotonic() < deadline, told
            listed = gantree("nodes", "--state", state).out
            assert "MIG: it gets config all-1g.10gb" in listed
            assert running.stop() == 0
