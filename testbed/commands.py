"""The commands of `python3 -m testbed`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from typing import Any

from testbed import cards, daemons, environment, lifecycle, unix_users
from testbed.cluster import Testbed
from testbed.failures import TestbedError
from testbed.instance import DEFAULT_NAME, NODES, Instance, name_instance


def main(argv: list[str] | None = None) -> int:
    arguments, rest = _parser().parse_known_args(argv)
    if rest and arguments.command != "burn":
        _parser().error(f"unknown arguments: {' '.join(rest)}")
    arguments.rest = rest
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
    testbed = Testbed.attach(arguments.name)
    values = environment.exports(testbed.instance)
    values["PATH"] = f"{testbed.root}/bin:{os.environ.get('PATH', daemons.PATH)}"
    values["PS1"] = f"[{arguments.name}] \\u \\w \\$ "
    program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    argv = program or ["bash", "--norc"]
    if arguments.user is None:
        os.execvpe(argv[0], argv, {**os.environ, **values})
    if arguments.user not in testbed.facts["users"]:
        raise TestbedError(f"no user {arguments.user!r}; there are: {', '.join(unix_users.ALL)}")
    with testbed.start_as(arguments.user, argv, env=values) as child:
        while child.returncode is None:
            with contextlib.suppress(KeyboardInterrupt):  # it is the program's, not ours
                child.wait()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _daemon(arguments: argparse.Namespace) -> int:
    instance = _running(arguments.name)
    if arguments.command in ("stop", "restart"):
        daemons.stop(instance, arguments.daemon)
    if arguments.command in ("start", "restart"):
        daemons.start(instance, arguments.daemon)
    return 0


def _card(arguments: argparse.Namespace) -> int:
    instance = _running(arguments.name)
    state = instance.node_dir(arguments.node) / "nvml"
    pairs = [text.partition("=") for text in arguments.settings]
    for key, sign, _ in pairs:
        if not sign:
            raise TestbedError(f"{key!r}: a setting is KEY=VALUE; an empty VALUE removes the key")
    keys: dict[str, cards.Value] = {key: value or None for key, _, value in pairs}
    if arguments.driver:
        cards.set_driver(state, **keys)
        return 0
    index = arguments.card
    if arguments.minor is not None:
        index = cards.find_index(state, arguments.minor)
    if index is None:
        raise TestbedError("which card? give --card (NVML index), --minor (Slurm index), --driver")
    if arguments.reset:
        cards.reset_card(state, index)
    if keys:
        cards.set_card(state, index, **keys)
    for key, value in cards.read_card(state, index).items():
        print(f"{key}={value}")
    return 0


def _burn(arguments: argparse.Namespace) -> int:
    program = str(_running(arguments.name).root / "bin/testbed-burn")
    os.execv(program, [program, *arguments.rest])


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
    ):
        commands.add_parser(name, parents=[named], help=text).set_defaults(run=run)
    env = commands.add_parser("env", parents=[named], help="print shell exports, or JSON")
    env.add_argument("--json", action="store_true")
    env.set_defaults(run=_env)
    shell = commands.add_parser(
        "shell", parents=[named], help="a shell, or a program, in a testbed"
    )
    shell.add_argument("--user", help="as this testbed user, in its home directory")
    shell.add_argument("program", nargs=argparse.REMAINDER, help="instead of a shell")
    shell.set_defaults(run=_shell)
    _add_card_commands(commands, named)
    for name in ("start", "stop", "restart"):
        one = commands.add_parser(name, parents=[named], help=f"{name} one daemon")
        one.add_argument("daemon", choices=daemons.NAMES)
        one.set_defaults(run=_daemon)
    return parser


def _add_card_commands(commands: Any, named: argparse.ArgumentParser) -> None:
    card = commands.add_parser("card", parents=[named], help="show or set a simulated card")
    card.add_argument("--node", required=True, choices=[node.name for node in NODES])
    card.add_argument(
        "--card", type=int, metavar="I", help="the card with NVML index I (file cardI)"
    )
    card.add_argument(
        "--minor", type=int, metavar="M", help="the card Slurm calls M (minor number)"
    )
    card.add_argument("--driver", action="store_true", help="set the node's driver instead")
    card.add_argument("--reset", action="store_true", help="drop what was set before")
    card.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    card.set_defaults(run=_card)
    burn = commands.add_parser(
        "burn", parents=[named], help="use the cards of this job", allow_abbrev=False
    )
    burn.set_defaults(run=_burn)
