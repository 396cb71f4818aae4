"""The scheduling cycle: which jobs start, wait or claim room, and which gangs stop, move or grow for that."""
