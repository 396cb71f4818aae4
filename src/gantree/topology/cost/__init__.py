"""What traffic costs: formulas of collectives, steps and predictions."""
