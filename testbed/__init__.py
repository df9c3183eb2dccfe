"""A throw-away real Slurm with simulated cards, for demos, tests and developers."""
