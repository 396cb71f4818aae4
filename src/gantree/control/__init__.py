"""The control plane: runs the decision core on a real cluster.

`engine` is the whole machine, synchronous and used by one thread; `inbox` makes events durable, `turn` decides about
them and commits, `requests` checks what users ask for, `readers` answer queries beside it. HTTP is in `gantree.api`.
"""
