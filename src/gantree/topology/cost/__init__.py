"""The cost of traffic: formulas of collectives, steps and predictions."""
