"""Parsers of text, in users' files and in output of other tools: YAML and JSON with lines, records, hostlists.

What fields mean is `formats` (files of ours) and `topology.discovery` (what tools print). Text in, values out: no
file is opened here.
"""
