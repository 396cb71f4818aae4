"""Pollux' simulated experiment (OSDI 2021): 64 GPUs, eight workloads of 160 jobs, throughput measured by placement.

profiles   what its authors measured of each application: seconds of an iteration by placement, and statistics
workload   the jobs: request, batch size, work
tiresias   their baseline Tiresias with tuned jobs, with their rule of overheads
ours       the same jobs under gantree's scheduler
published  what they published

The rules are those of simulator.py, applications.py and tiresias.py in simulator/ of github.com/petuum/adaptdl, branch
osdi21-artifact. Its data come without a licence and are not carried: they are read from a directory of the user's.
"""
