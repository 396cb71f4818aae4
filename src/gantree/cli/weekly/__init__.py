"""`gantree report`: a week of the fleet on two pages."""
