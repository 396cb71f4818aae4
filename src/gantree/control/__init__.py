"""The control plane: what drives the decision core on a real cluster.

`controller` is the whole machine, synchronous and used by one thread; `intake` is the door into the inbox,
`turn` decides and commits, `recovery` brings ledger and cluster together, `submission` chooses job ids, `loop`
feeds it from asyncio. What talks to people and programs is in `gantree.api`.
"""
