"""Traces as a subject of their own: what is in one, a part of it, more or less load, and new ones that are like it.

sizes         classes of jobs by the number of their GPUs
description   jobs, GPU-hours, sizes, durations, queues and arrivals of a trace
selection     a part of a trace
load          arrivals closer together, or longer jobs
distribution  what the jobs of a trace are like, as a distribution
synthesis     a new trace of a distribution
"""
