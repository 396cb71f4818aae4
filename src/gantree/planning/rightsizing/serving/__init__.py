"""Sizes inference: which GPU, part of a GPU or group of GPUs serves a model within the targets, and at which price."""
