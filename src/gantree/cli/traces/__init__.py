"""`gantree trace`: describes traces, reads those of others, and makes new ones of them."""
