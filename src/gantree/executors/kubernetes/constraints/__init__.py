"""Constraints between pods, on volumes and on channels: which nodes a pod may use."""
