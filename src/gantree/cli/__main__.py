"""`python -m gantree.cli` is the same as `gantree`."""

from gantree.cli.main import main

if __name__ == "__main__":
    main()
