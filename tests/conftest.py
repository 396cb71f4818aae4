"""Settings that hold for every test."""

from hypothesis import settings

settings.register_profile("gantree", deadline=None, print_blob=True)
settings.load_profile("gantree")
