"""The journal: what happened (inbox) and what was decided (facts, orders), kept for ever and in order.

`contract` says what every journal promises, `codec` how values become text, `sqlite` is the default journal.
Nothing here decides anything or knows what a fact means.
"""
