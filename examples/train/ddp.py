"""The same idea with PyTorch: DistributedDataParallel over NCCL where there are GPUs, else over gloo.

Needs torch (`pip install torch`). gantree sets the variables that `init_process_group` reads, so there is no
torchrun: gantree starts the processes, restarts the gang when one fails, and asks for checkpoints.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gantree import training

INPUTS, HIDDEN, BATCH = 8, 32, 64


def batch(
    seed: int, step: int, rank: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of a step's batch; depends on nothing else, so a resumed run sees the same."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_009 + rank)
    x = torch.randn(BATCH, INPUTS, generator=generator)
    return x.to(device), torch.sin(x.sum(dim=1, keepdim=True)).to(device)


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The whole file or none, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file
        )
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> int:
    """Restore both on every rank; the last finished step, 0 where nothing was saved."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Steps are counted from 1; a checkpoint of step n holds the model after n steps."""
    rank = training.rank()
    path = (training.checkpoint_path() or Path(options.checkpoint_dir)) / "checkpoint.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    done = load(path, model, optimizer, device)
    if rank == 0 and done:
        print(f"resumed from step {done}", flush=True)
    parallel = DistributedDataParallel(
        model, device_ids=[device.index] if device.index is not None else None
    )
    for step in range(done + 1, options.steps + 1):
        began_at = time.monotonic()
        x, y = batch(options.seed, step, rank, device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(x), y)
        loss.backward()  # averages the gradients over all ranks: the collective that keeps them in step
        optimizer.step()
        loss_of_rank = loss.item()  # waits for the GPU, so that a step is over when we say so
        time.sleep(max(0.0, options.step_s - (time.monotonic() - began_at)))
        if rank == 0:
            print(f"step {step} loss {loss_of_rank:.4f}", flush=True)
        if training.should_checkpoint(step) or _is_due(step, options):
            if rank == 0:
                save(path, step, model, optimizer)
                print(f"saved step {step}", flush=True)
            training.saved(step)


def _is_due(step: int, options: argparse.Namespace) -> bool:
    every: int = options.checkpoint_every
    return step == options.steps or (every > 0 and step % every == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--step-s", type=float, default=0.0, help="make a step last at least this long"
    )
    parser.add_argument(
        "--checkpoint-every", type=int, default=0, metavar="STEPS", help="0: only when asked to"
    )
    parser.add_argument(
        "--checkpoint-dir", default="checkpoints", help="where the job declares no path"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", training.local_rank()) if has_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if has_gpu else "gloo", rank=training.rank(), world_size=training.world_size()
    )
    try:
        train(options, device)
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
