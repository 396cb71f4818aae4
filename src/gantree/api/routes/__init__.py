"""The routes, one module for each noun: `router(backend)` gives them, and `gantree.api.server.app` puts them together.

Each asks the controller on its own thread and answers in JSON; nothing is decided here.
"""
