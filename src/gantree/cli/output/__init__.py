"""What commands print: JSON, tables, quantities, refusals, errors and progress."""
