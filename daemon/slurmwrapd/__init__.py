"""The service: `slurmwrapd serve` beside slurmctld, `slurmwrapd agent` on every node."""
