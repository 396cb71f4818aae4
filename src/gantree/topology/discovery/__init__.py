"""Parsers of descriptions of machines and fabrics by drivers, tools and people: text in, values of the model out.

`machines`, `networks` and `listings` have a parser per source; `gpus` and `fabrics` are what these return. `kinds`
names them all, `merging` puts fabrics together, `assembly` makes a cluster of a fabric and machines. Everything is
pure.
"""
