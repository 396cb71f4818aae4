"""Usage, bills, budgets, waste and history as plain JSON values."""
