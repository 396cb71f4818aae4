"""Real training on one machine whose network has leaves and a spine: step times by placement, beside the cost model.

network    namespaces, veth pairs and bridges, shaped by tc: made, and removed without a trace
train      what each rank runs: torch DDP over gloo, and its step times
site       the same network as a cluster file, and jobs on it
scenarios  what is compared
run        one scenario on a real daemon: step time, CPU idle, predicted step
page       docs/experiments/real.md
"""
