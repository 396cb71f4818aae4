"""Sizes inference: which GPU, part of a GPU or group of GPUs serves a model as asked, and at which price."""
