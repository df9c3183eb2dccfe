"""Running one Slurm command."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmwrap.config.settings import SlurmSettings
from slurmwrap.errors import SlurmCommandError, SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.commands import CONFIGURATION_TIME, SlurmCommands, pin_environment

# Printed by 22.05.8 while the daemon was stopped, munged was stopped, slurm.conf was missing.
AWAY = {
    "squeue": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "squeue stopped": "slurm_load_jobs error: Socket timed out on send/recv operation",
    "scontrol": "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)",
    "sacct": "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent"
    " connection to host:127.0.0.1:26663: Connection refused\n"
    "sacct: error: Sending PersistInit msg: Connection refused\n"
    "sacct: error: Problem talking to the database: Connection refused",
    "sreport": "sreport: error: Sending PersistInit msg: Connection refused\n"
    "sreport: fatal: Problem connecting to the database: Connection refused",
}
NO_MUNGE = (
    "squeue: error: If munged is up, restart with --num-threads=10\n"
    'squeue: error: Munge encode failed: Failed to access "/run/munge/socket": No such file or'
    " directory (Did you start munged?)\n"
    "slurm_load_jobs error: Protocol authentication error"
)
NO_CONF = (
    "squeue: error: s_p_parse_file: cannot stat file /nonexistent: No such file or directory,"
    " retrying in 1sec up to 60sec\nsqueue: error: ClusterName needs to be specified\n"
    "squeue: fatal: Unable to process configuration file"
)


def test_nothing_printed_with_status_0_is_an_answer(slurm) -> None:
    """A queue without jobs is an empty answer, not an error."""
    slurm.answer("squeue", b"")
    assert slurm.commands().run("squeue") == ""


def test_the_callers_format_variables_have_no_effect(slurm, monkeypatch) -> None:
    """B15: SLURM_TIME_FORMAT, SACCT_FORMAT and the like of the caller are dropped."""
    for name in (
        "SACCT_FORMAT",
        "SQUEUE_FORMAT",
        "SQUEUE_STATES",
        "SLURM_CLUSTERS",
        "SLURM_JOB_ID",
        "SBATCH_PARTITION",
        "SALLOC_ACCOUNT",
        "SCONTROL_ALL",
        "SINFO_FORMAT",
    ):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("SLURM_CONF", "/etc/other/slurm.conf")
    monkeypatch.setenv("SLURMWRAP_TESTBED", "kept")
    slurm.answer("sacct")
    slurm.commands().run("sacct")
    seen = slurm.environment("sacct")
    assert [name for name, value in seen.items() if value == "mine"] == []
    assert seen["SLURM_TIME_FORMAT"] == "%s"
    assert (seen["TZ"], seen["LC_ALL"]) == ("UTC", "C")
    assert seen["SLURM_CONF"] == "/etc/other/slurm.conf"
    assert seen["SLURMWRAP_TESTBED"] == "kept"


def test_the_setting_beats_the_callers_slurm_conf() -> None:
    """slurm.conf of our settings names the cluster, whatever SLURM_CONF says."""
    pinned = pin_environment({"SLURM_CONF": "/theirs"}, "/ours/slurm.conf")
    assert pinned["SLURM_CONF"] == "/ours/slurm.conf"


def test_a_missing_program_is_named_with_a_hint(tmp_path: Path) -> None:
    """Without Slurm's programs the message says which one, where, and what to do."""
    commands = SlurmCommands(SlurmSettings(bin_dir=str(tmp_path)))
    with pytest.raises(SlurmUnavailableError, match=r"'squeue' in .*") as caught:
        commands.run("squeue")
    assert "slurm.bin_dir" in (caught.value.hint or "")


def test_a_program_is_found_on_the_path(slurm) -> None:
    """Without slurm.bin_dir the PATH of the caller decides."""
    slurm.answer("sacct", "found")
    commands = SlurmCommands(SlurmSettings(), {"PATH": f"{slurm.folder}:/usr/bin:/bin"})
    assert commands.run("sacct") == "found"


def test_a_program_that_cannot_be_executed_is_unavailable(slurm) -> None:
    """A file that is no program is Slurm missing, not a crash."""
    path = slurm.folder / "squeue"
    path.write_bytes(b"\x7fELFbroken")
    path.chmod(0o755)
    with pytest.raises(SlurmUnavailableError, match="can't run"):
        slurm.commands().run("squeue")


@pytest.mark.parametrize("case", sorted(AWAY))
def test_a_daemon_that_is_away_is_unavailable(slurm, case: str) -> None:
    """What the commands print with a daemon stopped is told apart from other failures."""
    program = case.split()[0]
    slurm.answer(program, status=1, stderr=AWAY[case])
    daemon = "slurmdbd" if program.startswith(("sa", "sr")) else "slurmctld"
    with pytest.raises(SlurmUnavailableError, match=f"{daemon} does not answer") as caught:
        slurm.commands().run(program)
    assert caught.value.hint


@pytest.mark.parametrize(("stderr", "hint"), [(NO_MUNGE, "munged"), (NO_CONF, "slurm.conf")])
def test_munge_and_configuration_have_hints_of_their_own(slurm, stderr: str, hint: str) -> None:
    """munged away or no slurm.conf: the next step is another one than for a stopped daemon."""
    slurm.answer("squeue", status=1, stderr=stderr)
    with pytest.raises(SlurmUnavailableError) as caught:
        slurm.commands().run("squeue")
    assert hint in (caught.value.hint or "")


def test_any_other_failure_keeps_what_the_program_said(slurm) -> None:
    """argv, status and stderr of a failed command are kept as they were."""
    words = "scontrol: error: Access/permission denied for job 7\n"
    slurm.answer("scontrol", "not an answer", status=210, stderr=words)
    with pytest.raises(SlurmCommandError, match="permission denied") as caught:
        slurm.commands().run("scontrol", "update", "JobId=7")
    assert caught.value.argv[1:] == ["update", "JobId=7"]
    assert (caught.value.status, caught.value.stderr) == (210, words)


def test_a_command_that_hangs_is_ended(slurm) -> None:
    """Past slurm.command_timeout the command is ended, and the error has no status."""
    slurm.answer("squeue", script="exec sleep 30")
    with pytest.raises(SlurmCommandError, match="timed out") as caught:
        slurm.commands(timeout=1).run("squeue")
    assert caught.value.status is None


def test_bytes_that_are_no_utf8_do_not_stop_us(slurm) -> None:
    """A job name in another encoding is shown with replacement characters."""
    slurm.answer("squeue", b"caf\xe9\n")
    assert slurm.commands().run("squeue") == "caf\N{REPLACEMENT CHARACTER}\n"


def test_an_argument_is_never_read_by_a_shell(slurm) -> None:
    """A hostile argument arrives as it is."""
    slurm.answer("scontrol")
    slurm.commands().run("scontrol", "update", "AdminComment=$(touch x); `id` | a")
    assert slurm.calls("scontrol") == ["update AdminComment=$(touch x); `id` | a"]


def test_the_cluster_is_asked_once(slurm, recorded: Path) -> None:
    """ClusterName of a real slurmctld, asked when it is needed and then remembered."""
    slurm.answer("scontrol", recorded / "scontrol-show-config.txt")
    commands = slurm.commands(cluster="")
    assert [commands.cluster_name(), commands.cluster_name()] == ["testbed", "testbed"]
    assert slurm.calls("scontrol") == ["show config"]


def test_a_configured_cluster_is_not_asked_for(slurm) -> None:
    """slurm.cluster spares the question."""
    assert slurm.commands(cluster="beta").cluster_name() == "beta"


def test_a_configuration_without_a_name_is_refused(slurm) -> None:
    """No ClusterName: keys of runs would be wrong, so this is an error."""
    slurm.answer("scontrol", "SlurmctldTimeout = 60 sec\n")
    with pytest.raises(SlurmOutputError, match="ClusterName"):
        slurm.commands(cluster="").cluster_name()


def test_the_configuration_is_read_by_name(slurm, recorded: Path) -> None:
    """A real configuration: values with = and spaces, and slurmctld's own time."""
    slurm.answer("scontrol", recorded / "scontrol-show-config.txt")
    values = slurm.commands().read_configuration()
    assert values["AccountingStorageEnforce"] == "associations,limits,qos"
    assert values["AccountingStorageTRES"].endswith("gres/gpu,gres/gpu:a100,gres/gpu:h800")
    assert values["SLURM_VERSION"] == "22.05.8"
    assert values[CONFIGURATION_TIME].isdecimal()
