"""The daemon's face: HTTP with JSON over a Unix socket, and the client for it.

`client` is for programs that must start fast and imports the standard library only. `daemon` puts socket,
server and control loop together; `app` has the routes, `views` the JSON of things, `logs` the output of ranks.
"""
