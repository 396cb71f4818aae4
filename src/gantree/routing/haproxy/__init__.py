"""HAProxy as a router runs it: its files and Lua, its processes, what it is told and what it says."""
