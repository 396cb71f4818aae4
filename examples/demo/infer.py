"""Inference for the demo: each of the processes runs a small network over random inputs for a second, then ends."""

import os
import time

import numpy as np

rank = int(os.environ["RANK"])
rng = np.random.default_rng(rank)
layers = [rng.standard_normal((64, 64)) / 8 for _ in range(4)]
answers = 0
until = time.monotonic() + 1.0
while time.monotonic() < until:
    batch = rng.standard_normal((16, 64))
    for layer in layers:
        batch = np.maximum(batch @ layer, 0.0)
    answers += len(batch)
    time.sleep(0.01)
print(f"rank {rank} on GPUs {os.environ['CUDA_VISIBLE_DEVICES']}: {answers} answers", flush=True)
