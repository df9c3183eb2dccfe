"""Running one Slurm command: which program, in which environment, and what its end means."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmwrap.config.settings import SlurmSettings
from slurmwrap.errors import SlurmCommandError, SlurmOutputError, SlurmUnavailableError

# Variables by which a caller's environment would change what a Slurm command prints or does
# (sources: the ENVIRONMENT VARIABLES sections of the commands' manuals).
_SLURM_VARIABLE = re.compile(
    r"(?:SLURM|SACCT|SACCTMGR|SALLOC|SATTACH|SBATCH|SBCAST|SCANCEL|SCONTROL|SDIAG|SINFO|SPRIO"
    r"|SQUEUE|SREPORT|SRUN|SSHARE|SSTAT|STRIGGER)_.*"
)
# Those that say where Slurm is, not what a command prints.
_KEPT_VARIABLES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_SACK_SOCKET"})
_PINNED_VARIABLES = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}

CONFIGURATION_TIME = "Configuration data as of"
"""The name under which read_configuration has slurmctld's own time."""

_DAEMONS_OF_PROGRAMS = {"sacct": "slurmdbd", "sacctmgr": "slurmdbd", "sreport": "slurmdbd"}

# What the commands print when a daemon does not answer (22.05, tried with each daemon stopped).
_AWAY = re.compile(
    r"Unable to contact slurm controller"
    r"|Socket timed out on send/recv operation"
    r"|Zero Bytes were transmitted or received"
    r"|Connection refused|Connection timed out|No route to host"
    r"|failed to open persistent connection"
    r"|Problem (?:talking|connecting) to the database"
    r"|Unexpected message received for job"
    r"|in standby mode",
    re.IGNORECASE,
)
_NO_CREDENTIAL = re.compile(
    r"Munge encode failed|Munge decode failed|Protocol authentication error"
    r"|Invalid authentication credential|authentication plugin",
    re.IGNORECASE,
)
_NO_CONFIGURATION = re.compile(
    r"Unable to process configuration file|Could not establish a configuration source"
    r"|s_p_parse_file: (?:cannot|unable to) stat file",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Output:
    """What a command that exited with 0 has printed."""

    stdout: str
    stderr: str


class SlurmCommands:
    """Slurm's command-line programs, whatever the caller's environment says.

    Args:
        environment: the environment to start from; the process's own when None.
    """

    def __init__(
        self, settings: SlurmSettings, environment: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._environment = pin_environment(
            os.environ if environment is None else environment, settings.conf
        )
        self._cluster = settings.cluster

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the commands get."""
        return dict(self._environment)

    def find_program(self, program: str) -> str:
        """Path of a Slurm program: in ``slurm.bin_dir``, or on PATH.

        Raises:
            SlurmUnavailableError: it is not there.
        """
        folder = self._settings.bin_dir
        path = str(Path(folder) / program) if folder else program
        found = shutil.which(path, path=self._environment.get("PATH", os.defpath))
        if found is None:
            where = folder or "the folders of PATH"
            raise SlurmUnavailableError(
                f"there is no program {program!r} in {where}",
                hint="install Slurm's client programs, or set slurm.bin_dir to their folder",
            )
        return found

    def run(self, program: str, *arguments: str) -> str:
        """What the program printed on stdout; see execute."""
        return self.execute(program, *arguments).stdout

    def execute(self, program: str, *arguments: str) -> Output:
        """Run the program to its end. Bytes that are no UTF-8 become U+FFFD.

        Raises:
            SlurmUnavailableError: the program is missing, or a daemon of Slurm is away.
            SlurmCommandError: it failed otherwise, or did not end within
                ``slurm.command_timeout`` (status None).
        """
        argv = [self.find_program(program), *arguments]
        try:
            done = subprocess.run(
                argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._settings.command_timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmCommandError(
                argv,
                None,
                f"no answer within {self._settings.command_timeout} s"
                f" (slurm.command_timeout) {_decode(error.stderr).strip()}".rstrip(),
                hint="does the host that it asks still answer? `scontrol ping` says so",
            ) from error
        except OSError as error:
            raise SlurmUnavailableError(
                f"can't run {argv[0]}: {error.strerror}",
                hint="may this user run Slurm's programs?",
            ) from error
        if done.returncode != 0:
            raise explain_failure(argv, done.returncode, _decode(done.stderr))
        return Output(stdout=_decode(done.stdout), stderr=_decode(done.stderr))

    def cluster_name(self) -> str:
        """``slurm.cluster`` if set, else ClusterName as slurmctld says; asked once.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        """
        if not self._cluster:
            self._cluster = self.read_configuration().get("ClusterName", "")
            if not self._cluster:
                raise SlurmOutputError(
                    "`scontrol show config` names no ClusterName",
                    hint="set slurm.cluster in slurmwrap.toml",
                )
        return self._cluster

    def read_configuration(self) -> dict[str, str]:
        """slurmctld's configuration as it is in force, by name; ``(null)`` and the like as
        Slurm prints them. Under CONFIGURATION_TIME: slurmctld's time, in epoch seconds.

        Raises:
            SlurmUnavailableError, SlurmCommandError.
        """
        values: dict[str, str] = {}
        for line in self.run("scontrol", "show", "config").splitlines():
            if line.startswith(CONFIGURATION_TIME):
                values[CONFIGURATION_TIME] = line.removeprefix(CONFIGURATION_TIME).strip()
                continue
            name, separator, value = line.partition("=")
            if separator:
                # The first wins: parts of other files (cgroup.conf) follow with names of theirs.
                values.setdefault(name.strip(), value.strip())
        return values


def pin_environment(environment: Mapping[str, str], conf: str = "") -> dict[str, str]:
    """An environment in which Slurm's commands print the same for everybody.

    A caller's SLURM_TIME_FORMAT, SACCT_FORMAT, SQUEUE_STATES, SLURM_CLUSTERS and the like are
    dropped; times are UTC epoch seconds.

    Args:
        conf: path of slurm.conf; empty: SLURM_CONF as the caller has it, if at all.
    """
    pinned = {
        name: value
        for name, value in environment.items()
        if name in _KEPT_VARIABLES or not _SLURM_VARIABLE.fullmatch(name)
    }
    pinned.update(_PINNED_VARIABLES)
    if conf:
        pinned["SLURM_CONF"] = conf
    return pinned


def explain_failure(
    argv: list[str], status: int, stderr: str
) -> SlurmUnavailableError | SlurmCommandError:
    """The error that a failed command stands for, by what it printed."""
    program = Path(argv[0]).name
    words = " ".join(stderr.split())
    if _NO_CREDENTIAL.search(stderr):
        return SlurmUnavailableError(
            f"{program} could not prove who it is: {words}",
            hint="is munged running on this host? try `munge -n | unmunge`",
        )
    if _NO_CONFIGURATION.search(stderr):
        return SlurmUnavailableError(
            f"{program} found no usable slurm.conf: {words}",
            hint="set slurm.conf in slurmwrap.toml to its path",
        )
    if _AWAY.search(stderr):
        daemon = _DAEMONS_OF_PROGRAMS.get(program, "slurmctld")
        return SlurmUnavailableError(
            f"{daemon} does not answer {program}: {words}",
            hint=f"`systemctl status {daemon}` on its host; slurmwrap tries again by itself",
        )
    return SlurmCommandError(argv, status, stderr)


def _decode(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", errors="replace")
