"""Billing: pure functions from records and prices to charges, statements and budgets."""
