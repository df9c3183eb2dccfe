"""Rules: pure functions from settings and evidence to a verdict with a reason."""
