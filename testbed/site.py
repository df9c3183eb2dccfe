"""slurmwrap at work on a testbed: its settings, its service, its agents and a mail sink."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import processes
from testbed.cluster import Testbed
from testbed.mail_sink import Mail, read_mails

SERVICE_USER = "slurmwrap"
AGENT_USER = "slurmwrap-agent"

# Two hours become forty seconds and so on: only settings are shortened, never the program.
SHORT_SETTINGS: dict[str, dict[str, Any]] = {
    "daemon": {"request_timeout": "5s"},
    "collect": {"interval": "1s"},
    "accounting": {"interval": "5s", "overlap": "1h"},
    "agents": {"interval": "2s", "read_every": 0.2, "call_timeout": "1s"},
    "rules": {"interval": "1s"},
    "budgets": {"interval": "3s"},
    "notify": {"interval": "1s", "timeout": "5s"},
    "run": {"report_interval": "2s"},
    "submit": {"signal_before_limit": "30s"},
}
SHORT_RULES: dict[str, dict[str, Any]] = {
    "idle-gpu": {"mode": "enforce", "window": "40s", "warn_after": "25s", "grace": "10s"},
    "plateau": {"mode": "enforce", "grace": "5s"},
}
PRICES = """\
[[price]]
name = "a100"
gpu_type = "a100"
per_card_hour = "12.00"

[[price]]
name = "h800"
gpu_type = "h800"
per_card_hour = "35.00"
"""


@dataclass
class Site:
    """The programs as an administrator would run them; started and stopped one by one."""

    testbed: Testbed
    folder: Path
    programs: Path
    settings: dict[str, Any]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls,
        testbed: Testbed,
        *,
        name: str = "site",
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
        prices: str = PRICES,
        budgets: tuple[Mapping[str, Any], ...] = (),
    ) -> Site:
        """Write settings for an empty site; nothing is started yet."""
        folder = testbed.root / name
        shutil.rmtree(folder, ignore_errors=True)
        for part, owner in (
            ("etc", "root"), ("var", SERVICE_USER), ("spool", AGENT_USER), ("mail", "root"),
            ("log", "root"),
        ):  # fmt: skip
            (folder / part).mkdir(parents=True)
            shutil.chown(folder / part, owner)
        site = cls(
            testbed=testbed,
            folder=folder,
            programs=Path(sys.executable).parent,
            settings=merge(_site_settings(testbed, folder), SHORT_SETTINGS, settings or {}),
        )
        site.write("slurmwrap.toml", to_toml(site.settings, budgets))
        site.write("rules.toml", to_toml(merge(SHORT_RULES, rules or {})))
        site.write("prices.toml", prices)
        return site

    @property
    def config_file(self) -> Path:
        return self.folder / "etc" / "slurmwrap.toml"

    @property
    def database(self) -> Path:
        return Path(self.settings["daemon"]["database"])

    def write(self, name: str, text: str) -> None:
        """Replace one of the site's files."""
        path = self.folder / "etc" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)

    def start(self) -> None:
        """Start everything and wait until the service answers."""
        self.start_mail()
        self.start_service()
        for node in self.testbed.facts["nodes"]:
            self.start_agent(node)

    def start_service(self, *, await_ready: bool = True) -> None:
        self._start("serve", SERVICE_USER, [self.programs / "slurmwrapd", "serve"])
        if await_ready:
            self.testbed.wait_for(self._is_answering, 30, "slurmwrapd serve answers /readyz")

    def start_agent(self, node: str) -> None:
        facts = self.testbed.facts["nodes"][node]
        self._start(
            f"agent-{node}",
            AGENT_USER,
            [self.programs / "slurmwrapd", "agent", "--node", node],
            {
                "LD_LIBRARY_PATH": facts["nvml_library"],
                "SLURMWRAP_TESTBED_NVML": facts["nvml_state"],
                "SLURMWRAP_AGENTS_SPOOL_DIR": str(self._spool(node)),
            },
        )

    def start_mail(self) -> None:
        port = self.testbed.facts["smtp_port"]
        argv = [sys.executable, "-m", "testbed.mail_sink", str(port), str(self.folder / "mail")]
        self._start("mail", "root", argv, cwd=Path(__file__).resolve().parent.parent)
        self.testbed.wait_for(lambda: _is_open(port), 20, "the mail sink listens")

    def stop(self, name: str | None = None, number: int = signal.SIGTERM) -> None:
        """Stop one program, or all of them, and wait until it is gone."""
        for key in [name] if name else list(self.running):
            child = self.running.pop(key)
            child.send_signal(number)
            try:
                child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def kill(self, name: str) -> None:
        """kill -9."""
        self.stop(name, signal.SIGKILL)

    def slurmwrap(
        self, user: str, *arguments: str, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `slurmwrap` as a user of the site."""
        return self._run(user, "slurmwrap", arguments, options)

    def slurmwrapd(
        self, user: str, *arguments: str, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `slurmwrapd` as a user of the site."""
        return self._run(user, "slurmwrapd", arguments, options)

    def submit(self, user: str, *arguments: str) -> int:
        """`slurmwrap submit --json …`; the raw job id."""
        answer = json.loads(self.slurmwrap(user, "submit", "--json", *arguments, check=True).stdout)
        return int(answer["job_id"])

    def status(self, user: str, job: int | str) -> dict[str, Any]:
        """The newest run of a job as `slurmwrap status --json` gives it."""
        done = self.slurmwrap(user, "status", "--json", str(job), check=True)
        status: dict[str, Any] = json.loads(done.stdout)["jobs"][0]
        return status

    def mails(self, *, to: str = "", subject: str = "") -> list[Mail]:
        """Mails that the sink accepted, whose recipient and subject contain these words."""
        return [
            mail
            for mail in read_mails(self.folder / "mail")
            if to in mail.to and subject in mail.subject
        ]

    def log(self, name: str) -> str:
        """What a program has written to its log."""
        return (self.folder / "log" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /readyz."""
        url = self.settings["daemon"]["url"] + "/readyz"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def _is_answering(self) -> bool:
        child = self.running["serve"]
        if child.poll() is not None:
            raise RuntimeError(
                f"slurmwrapd serve ended with {child.returncode}:\n{self.log('serve')}"
            )
        try:
            self.readyz()
        except OSError:
            return False
        return True

    def _spool(self, node: str) -> Path:
        folder = self.folder / "spool" / node
        if not folder.exists():
            folder.mkdir()
            shutil.chown(folder, AGENT_USER)
        return folder

    def _run(
        self, user: str, program: str, arguments: tuple[str, ...], options: dict[str, Any]
    ) -> subprocess.CompletedProcess[str]:
        environment = {"SLURMWRAP_CONFIG": str(self.config_file), **options.pop("env", {})}
        argv = [str(self.programs / program), *arguments]
        return self.testbed.run_as(user, argv, env=environment, **options)

    def _start(
        self,
        name: str,
        user: str,
        argv: list[Any],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        if name in self.running and self.running[name].poll() is None:
            raise RuntimeError(f"{name} is running already")
        marked = {
            processes.MARK: str(self.testbed.root),
            "SLURMWRAP_CONFIG": str(self.config_file),
            **(environment or {}),
        }
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self.running[name] = self.testbed.start_as(
                user,
                [os.fspath(part) for part in argv],
                env=marked,
                cwd=cwd or "/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def merge(*parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Tables laid over each other, later keys first."""
    merged: dict[str, Any] = {}
    for part in parts:
        for section, values in part.items():
            merged[section] = {**merged.get(section, {}), **values}
    return merged


def to_toml(
    tables: Mapping[str, Mapping[str, Any]], budgets: tuple[Mapping[str, Any], ...] = ()
) -> str:
    """Settings as TOML: JSON writes strings, numbers, booleans and lists the same way."""
    lines: list[str] = []
    for section, values in tables.items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {_to_value(value)}" for key, value in values.items())
    for budget in budgets:
        lines.append("[[budget]]")
        lines.extend(f"{key} = {_to_value(value)}" for key, value in budget.items())
    return "\n".join(lines) + "\n"


def _to_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_to_value(part)}" for key, part in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)


def _site_settings(testbed: Testbed, folder: Path) -> dict[str, dict[str, Any]]:
    facts = testbed.facts
    own_addresses = sorted({"127.0.0.1", *_addresses_of_this_host()})
    mail = (
        f"mailto://127.0.0.1:{facts['smtp_port']}"
        "?from=slurmwrap@example.org&to={user}@example.org&mode=insecure"
    )
    return {
        "slurm": {"conf": facts["slurm_conf"], "bin_dir": "/usr/bin", "command_timeout": "20s"},
        "munge": {"socket": facts["munge_socket"]},
        "daemon": {
            "url": f"http://127.0.0.1:{facts['daemon_port']}",
            "bind": f"127.0.0.1:{facts['daemon_port']}",
            "user": SERVICE_USER,
            "database": str(folder / "var" / "slurmwrap.db"),
        },
        "agents": {
            "users": [AGENT_USER],
            "addresses": dict.fromkeys(facts["nodes"], own_addresses),
        },
        "rules": {"file": str(folder / "etc" / "rules.toml")},
        "billing": {"prices": str(folder / "etc" / "prices.toml")},
        "notify": {
            "user_urls": [mail],
            "account_urls": [mail],
            "admin_urls": [mail.replace("{user}", "hpc-admins")],
        },
        "staging": {"cache_dir": str(testbed.root / "nodes" / "{node}" / "nvme" / "slurmwrap")},
    }


def _addresses_of_this_host() -> set[str]:
    """What munged may put into credentials: the addresses that the host's name resolves to."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)
    except OSError:
        return set()
    return {str(item[4][0]) for item in found}


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
