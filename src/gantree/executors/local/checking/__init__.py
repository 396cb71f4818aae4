"""The check before the start on this machine: its plan and the programs that shims start, and the files they write.

    check/plan.json        members, address, port and prices; written once, before the first program starts
    check/spec-<k>.json    the plan with the number of a member
    check/rank-<r>.jsonl   what each rank measured
    check/nccl-<k>.*.log   what NCCL said of its transports
    check/progress.json    how many measurements are done
    check/report.json      the verdict and what follows from it

What runs is in `gantree.telemetry.checking`; nothing of it is imported here.
"""
