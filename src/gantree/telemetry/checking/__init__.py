"""The check of a gang before its command starts: collectives among its own members, compared and judged.

The executor starts one program a member (`member`), with the member's devices and in its cgroup. It starts a rank for
each GPU (`rank`, on torch.distributed), which time all-reduces: inside each member, between pairs of members
(`rounds`), over all of them, and between the GPUs of a member that is short. `figures` are what they measured, `judge`
says who is at fault, `spec` is the file that the executor writes, `report` the one that it reads.

In pods there is no folder in common: `pod` is the program there, which posts (`pod_post`) what its ranks found.
"""
