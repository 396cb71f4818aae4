"""What command lines name: files, durations, policies and clusters, read and checked."""
