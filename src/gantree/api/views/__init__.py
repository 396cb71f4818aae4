"""The ledger as plain JSON values, for answers and pages. No HTTP here."""
