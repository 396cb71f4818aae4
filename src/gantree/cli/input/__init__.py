"""Arguments of commands: files, durations, policies and clusters, read and checked."""
