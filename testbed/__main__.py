"""The command line: `python3 -m testbed COMMAND [--name NAME]`."""

from testbed.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
