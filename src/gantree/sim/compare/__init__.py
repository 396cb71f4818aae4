"""`gantree compare`: results of several simulations of one trace on one cluster, beside each other.

directories   what a directory of results says, and that all of them belong together
variants      runs that differ in their seed alone
intervals     means and differences over seeds, with confidence intervals
comparison    the figures of all variants, with differences to the first
page          the comparison as one page with charts
"""
