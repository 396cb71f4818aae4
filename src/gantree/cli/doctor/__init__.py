"""`gantree doctor`: checks of the machine, the state directory and the daemon, each with what to do."""
