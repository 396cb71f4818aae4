"""The program `gantree`. `main` lists the commands; each has a module, imported only when it is called.

Commands that talk to a daemon use `gantree.api.client.client` and import nothing heavy; offline ones (`place`, `topo`,
`simulate`) read files through `gantree.formats` and call the floors below directly. Nothing is decided here.
"""
