"""The commands of `python3 -m testbed`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys

from testbed import daemons, environment, lifecycle
from testbed.failures import TestbedError
from testbed.instance import DEFAULT_NAME, Instance, name_instance


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _up(arguments: argparse.Namespace) -> int:
    lifecycle.up(arguments.name)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    lifecycle.down(arguments.name)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    instance = name_instance(arguments.name)
    pids = {name: daemons.find(instance, name) for name in daemons.NAMES}
    state = "up" if lifecycle.is_up(instance) else "down" if not any(pids.values()) else "broken"
    print(f"{instance.name}: {state} ({instance.root})")
    for name, pid in pids.items():
        print(f"  {name:12} {f'pid {pid}' if pid else 'not running'}")
    return 0 if state == "up" else 3


def _env(arguments: argparse.Namespace) -> int:
    instance = _running(arguments.name)
    if arguments.json:
        print(json.dumps(environment.describe(instance), indent=2))
        return 0
    for name, value in environment.exports(instance).items():
        print(f"export {name}={shlex.quote(value)}")
    print(f"export PATH={shlex.quote(str(instance.root / 'bin'))}:$PATH")
    return 0


def _shell(arguments: argparse.Namespace) -> int:
    instance = _running(arguments.name)
    values = environment.exports(instance)
    values["PATH"] = f"{instance.root}/bin:{os.environ.get('PATH', daemons.PATH)}"
    values["PS1"] = f"[{instance.name}] \\w \\$ "
    print("testbed: `exit` leaves this shell; the testbed stays up", file=sys.stderr)
    os.execvpe("bash", ["bash", "--norc"], {**os.environ, **values})


def _daemon(arguments: argparse.Namespace) -> int:
    instance = _running(arguments.name)
    if arguments.command in ("stop", "restart"):
        daemons.stop(instance, arguments.daemon)
    if arguments.command in ("start", "restart"):
        daemons.start(instance, arguments.daemon)
    return 0


def _running(name: str) -> Instance:
    instance = name_instance(name)
    if not instance.ports:
        raise TestbedError(f"{name} is not up; run: python3 -m testbed up --name {name}")
    return instance


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="testbed", description="A throw-away real Slurm.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default=DEFAULT_NAME, help="which testbed (default: %(default)s)")
    for name, run, text in (
        ("up", _up, "install what is missing and bring a testbed up"),
        ("down", _down, "remove every process, file and user of a testbed"),
        ("status", _status, "say which daemons run; exit code 3 when not all do"),
        ("shell", _shell, "a shell whose Slurm is the testbed"),
    ):
        commands.add_parser(name, parents=[named], help=text).set_defaults(run=run)
    env = commands.add_parser("env", parents=[named], help="print shell exports, or JSON")
    env.add_argument("--json", action="store_true")
    env.set_defaults(run=_env)
    for name in ("start", "stop", "restart"):
        one = commands.add_parser(name, parents=[named], help=f"{name} one daemon")
        one.add_argument("daemon", choices=daemons.NAMES)
        one.set_defaults(run=_daemon)
    return parser
