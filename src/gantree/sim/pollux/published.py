"""What Pollux published: means of completion times in seconds, and of the raw results by workload.

results-jobload/*-1.0/summary.json of the artifact. Pollux and Optimus choose GPUs and batch sizes of jobs themselves;
"Tiresias" runs them with the requests of the workload, which its authors tuned.
"""

MEAN_JCT_S = {
    "Pollux": 2751.13,
    "Tiresias": 4038.18,
    "Optimus": 5681.93,
}  # fmt: skip

TIRESIAS_MEAN_JCT_S = (2473.65, 5144.96, 3876.26, 3280.26, 3501.01, 3469.69, 5479.91, 5079.71)
"""By workload, the first to the eighth."""
