"""Several readings of one machine put together: each fills in what the others do not tell."""
