"""Muri's simulated experiment (SIGCOMM'22): 64 GPUs, jobs of Philly, three orders, preemption at every event.

trace      their traces, and the start overheads that they measured
nodes      their way to place: counting, and "yarn"
orders     who runs: SRTF, SRSF, Tiresias-L
replay     the loop, with their rule of overheads
published  what they published, to hold a replay against

The rules are those of run_sim.py, cluster.py, switch.py and jobs.py in simulator/ of github.com/Rivendile/Muri
(Apache-2.0).
"""
