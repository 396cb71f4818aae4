"""The pages of jobs: the lists, and one job."""
