"""`python -m slurmwrap`: the command `slurmwrap` for a known interpreter."""

from slurmwrap.cli import main

main()
