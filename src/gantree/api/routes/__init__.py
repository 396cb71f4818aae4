"""The routes, one module for each noun: `router(backend)` returns them, `gantree.api.server.app` assembles them.

Each asks the controller on its own thread and answers in JSON; nothing is decided here.
"""
