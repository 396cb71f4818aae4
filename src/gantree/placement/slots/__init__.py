"""Slots: how many members of one shape each node, and so each domain, can still hold.

A layer below `counting`, `members` and `scoring`, which all read it: counting asks where a gang fits, slots only how
many of one shape do. Which GPUs of a node a member gets is in `placement.machine`, below.
"""
