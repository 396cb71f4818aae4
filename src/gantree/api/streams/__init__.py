"""Answers that go on: the timeline, the output of ranks, sessions beside a running rank."""
