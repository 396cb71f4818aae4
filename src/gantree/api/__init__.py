"""The daemon's API: HTTP with JSON over a Unix socket or TCP, and the clients for it.

`client` is for programs that must start fast and imports the standard library only. `server` puts socket, HTTP and
engine together; `routes` has one module for each noun, `views` the JSON of things, `streams` the answers that go on.
"""
