"""Streaming responses: the timeline, output of ranks, exec sessions."""
