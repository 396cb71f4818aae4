"""Services measured with model servers and load generators that others wrote (README.md)."""
