"""One scheduling cycle: who starts, who waits and who gives up room."""
