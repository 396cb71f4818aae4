"""The output of jobs: the log files of ranks read, merged by time, searched and sent."""
