"""Assigns ranks to GPUs."""
