"""calibration.yaml."""
