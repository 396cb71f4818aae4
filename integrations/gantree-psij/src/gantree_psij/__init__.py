"""A PSI/J executor for gantree; PSI/J finds it by its descriptor and calls it `gantree`."""
