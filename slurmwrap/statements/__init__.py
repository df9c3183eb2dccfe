"""A statement as text, CSV and JSON."""
