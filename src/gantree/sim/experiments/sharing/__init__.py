"""Experiments on sharing GPUs and fleets between training and inference."""
