"""The integrations against the real libraries; each is skipped where its library is missing.

They are too large for the development requirements: a virtual environment with torch, lightning, transformers and
accelerate (1.2 GB) runs them by hand, as docs/training.md says.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gantree import training
from gantree.training import accelerate as gantree_accelerate
from gantree.training import huggingface, lightning, torchrun

SRC = Path(training.__file__).parents[2]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory of a gang of one rank, with a checkpoint asked for."""
    run = tmp_path / "run"
    for folder in ("checkpoint", "progress"):
        (run / folder).mkdir(parents=True)
    ask(run, "first")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GANTREE_RUN_DIR", str(run))
    monkeypatch.setenv("GANTREE_CHECKPOINT_PATH", str(tmp_path / "checkpoints"))
    return run


def ask(run: Path, request: str) -> None:
    """Ask for a checkpoint as the executor does."""
    temporary = run / "checkpoint" / ".request"
    temporary.write_text(json.dumps({"request": request, "deadline_at": 0.0}))
    temporary.replace(run / "checkpoint" / "request.json")


def said(run: Path) -> Any:
    """What rank 0 said that it has saved."""
    return json.loads((run / "checkpoint" / "rank-0.json").read_text())


def library(name: str) -> Any:
    """The library, or a skip that says how to have it."""
    return pytest.importorskip(name, reason=f"{name} is not installed: see docs/training.md")


def test_lightning_saves_when_asked_and_goes_on_from_there(run_dir: Path, tmp_path: Path) -> None:
    torch = library("torch")
    package = library("lightning.pytorch")

    class Model(package.LightningModule):  # type: ignore[misc, name-defined]  # the base comes at run time
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)))

    def fit(steps: int) -> Any:
        trainer = package.Trainer(
            max_steps=steps, callbacks=[lightning.callback()], logger=False, accelerator="cpu",
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path, accumulate_grad_batches=2,
        )  # fmt: skip
        trainer.fit(Model(), data, ckpt_path=lightning.newest())
        return trainer

    assert lightning.newest() is None
    fit(3)
    step = said(run_dir)["request_step"]
    assert lightning.newest() == str(tmp_path / "checkpoints" / f"step-{step}")
    trainer = fit(4)
    assert trainer.global_step == 4
    told = json.loads((run_dir / "progress" / "rank-0.json").read_text())
    assert told["step"] >= 1 and told["loss"] >= 0


LIGHTNING = """
import torch, lightning.pytorch as L
from gantree.training import lightning
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 2)))
L.Trainer(
    max_steps=6, callbacks=[lightning.callback()], logger=False, accelerator="cpu", devices=2, strategy="ddp",
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
).fit(Model(), data)
"""
TRAINER = """
import os, torch, transformers
from gantree.training import huggingface
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x):
        return {"loss": self.layer(x).pow(2).mean()}
arguments = transformers.TrainingArguments(
    os.environ["GANTREE_RUN_DIR"] + "/output", max_steps=6, save_strategy="no", report_to=[], use_cpu=True,
    per_device_train_batch_size=1, disable_tqdm=True, ddp_backend="gloo",
)
trainer = transformers.Trainer(Model(), arguments, train_dataset=[{"x": torch.ones(2)} for _ in range(32)])
huggingface.attach(trainer)
trainer.train()
"""
ACCELERATE = """
import accelerate, torch
from gantree.training import ddp
accelerator = accelerate.Accelerator(cpu=True)
layer = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
assert ddp.watch(model)
for step in range(6):
    accelerator.backward(model(torch.ones(1, 2)).sum())
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("package", "script"),
    [("lightning.pytorch", LIGHTNING), ("transformers", TRAINER), ("accelerate", ACCELERATE)],
)
def test_own_times_of_ddp_are_reported(package: str, script: str, tmp_path: Path) -> None:
    library("torch")
    library(package)
    (tmp_path / "progress").mkdir()
    path = f"{SRC}:{os.environ.get('PYTHONPATH', '')}"
    base = {
        **os.environ, "PYTHONPATH": path, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28735",
        "GANTREE_RUN_DIR": str(tmp_path), "NODE_RANK": "0",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script], env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    for rank in range(2):
        told = json.loads((tmp_path / "progress" / f"steps-{rank}.json").read_text())["steps"]
        assert [step for step, _ in told] == [1, 2, 3, 4, 5]


def test_the_hugging_face_trainer_saves_its_own_checkpoint_when_asked(
    run_dir: Path, tmp_path: Path
) -> None:
    torch = library("torch")
    transformers = library("transformers")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # the base comes at run time
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": self.layer(x).pow(2).mean()}

    output = str(tmp_path / "output")
    arguments = transformers.TrainingArguments(
        output, max_steps=4, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
        per_device_train_batch_size=1, disable_tqdm=True,
    )  # fmt: skip
    data = [{"x": torch.ones(2)} for _ in range(8)]
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=data, callbacks=[huggingface.callback()]
    )
    assert huggingface.newest(output) is None
    trainer.train()
    step = said(run_dir)["request_step"]
    assert huggingface.newest(output) == str(tmp_path / "output" / f"checkpoint-{step}")


def test_accelerate_saves_its_state_when_asked_and_loads_it(run_dir: Path) -> None:
    torch = library("torch")
    accelerate = library("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    layer = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    saved = []
    for step in range(4):
        loss = model(torch.ones(1, 2)).sum()
        accelerator.backward(loss)
        optimizer.step()
        if gantree_accelerate.after_step(accelerator, step, loss=loss):
            saved.append((step, layer.weight.clone()))
    ((step, weight),) = saved
    assert said(run_dir)["request_step"] == step
    assert gantree_accelerate.resume(accelerator) == step + 1
    assert torch.equal(accelerator.unwrap_model(model).weight, weight)


SCRIPT = """
import json, os, sys, torch.distributed as dist
from gantree import training
dist.init_process_group("gloo")
total = [None] * training.world_size()
dist.all_gather_object(total, training.rank())
mine = [training.rank(), training.local_rank(), training.world_size(), total, training.rendezvous().id]
open(sys.argv[1] + f"/{training.rank()}.json", "w").write(json.dumps(mine))
dist.destroy_process_group()
"""


def test_torchrun_keeps_the_ranks_that_gantree_chose(tmp_path: Path) -> None:
    library("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    base = {
        **os.environ, "PYTHONPATH": str(SRC), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "28731", "GANTREE_RENDEZVOUS_ID": "j-1", "GANTREE_WORLD_SIZE": "2",
        "GANTREE_PROCESSES_PER_MEMBER": "2", "LOCAL_RANK": "0",
    }  # fmt: skip
    members = [
        subprocess.Popen(
            [sys.executable, "-m", "gantree.training.torchrun", str(script), str(tmp_path)],
            env={**base, "NODE_RANK": str(number), "RANK": str(number)},
        )
        for number in range(2)
    ]
    assert [member.wait(120) for member in members] == [0, 0]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert told == [[rank, rank % 2, 4, [0, 1, 2, 3], "j-1"] for rank in range(4)]


def test_torchruns_options_follow_from_gantrees_environment() -> None:
    environment = {
        "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001",
        "GANTREE_RENDEZVOUS_ID": "j-2", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    }  # fmt: skip
    assert torchrun.options(environment) == {
        "nnodes": "4", "nproc-per-node": "8", "node-rank": "3", "master-addr": "10.0.0.1", "master-port": "20001",
        "rdzv-backend": "static", "rdzv-endpoint": "10.0.0.1:20001", "rdzv-id": "j-2", "max-restarts": "0",
    }  # fmt: skip
    assert torchrun.variables(environment)["PET_RDZV_ID"] == "j-2"
    assert torchrun.options({**environment, "GANTREE_REPLACEABLE": "1"}) == {
        "nnodes": "4", "nproc-per-node": "8", "rdzv-backend": "c10d", "rdzv-endpoint": "10.0.0.1:20001",
        "rdzv-conf": "is_host=0", "rdzv-id": "j-2", "max-restarts": "3",
    }  # fmt: skip
    assert torchrun.options({})["nnodes"] == "1"
