"""What any file is made of, ours or a stranger's: YAML and JSON with lines, records, hostlists, the likely word.

What fields mean is `formats` (files of ours) and `topology.discovery` (what tools print). Text in, values out: no
file is opened here.
"""
