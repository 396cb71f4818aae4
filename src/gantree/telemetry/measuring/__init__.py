"""Collectives timed on this machine, or on several, and links fitted to the times (`gantree topo measure`).

`measure` is the way in. Which GPUs are timed together is `plan`; what starts and ends processes is `processes`; the
two ways to time are `binaries` (nccl-tests) and `ranks` (torch.distributed; `rank` is the program of one rank); what
a launcher said is `launch`; times become links in `fit`.
"""
