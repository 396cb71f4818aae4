"""Batch scripts with `#SBATCH` and `#GANTREE` lines."""
