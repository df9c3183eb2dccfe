"""The only place that reads accelerators."""
