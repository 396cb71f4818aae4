"""`python -m gantree` is the same as `gantree`."""

from gantree.cli.start import start

if __name__ == "__main__":
    start()
