"""Experiments: claims of the field, each shown by one command.

experiment   what an experiment is: claim, set-up, result, verdict
catalogue    all experiments by name
runner       runs them on all cores and writes their pages
page         an outcome as a page of Markdown, and its plots
texts        claim, source, set-up and notes of each, as Markdown
inputs       frozen files that experiments read; `inputs.py` reads them
NAME         one experiment each
"""
