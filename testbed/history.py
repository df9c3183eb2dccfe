"""Past jobs put into slurmdbd's own tables, so that sacct and sreport tell of months gone by."""

from __future__ import annotations

import json
import pwd
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.cluster import Testbed
from testbed.failures import TestbedError

# Numbers of slurm.h: enum job_states, and the JOB_REQUEUE flag of a run that was requeued.
STATES = {
    "COMPLETED": 3,
    "CANCELLED": 4,
    "FAILED": 5,
    "TIMEOUT": 6,
    "NODE_FAIL": 7,
    "PREEMPTED": 8,
    "OUT_OF_MEMORY": 11,
    "REQUEUED": 1024,
}
_PLAIN = re.compile(r"[\w.:\[\],-]{1,100}")
_HOUR = 3600


@dataclass(frozen=True)
class PastJob:
    """One run as slurmdbd would have recorded it. Times are UTC epoch seconds."""

    job_id: int
    user: str
    account: str
    start: int
    end: int
    gpu_type: str
    cards: int
    """Over all nodes."""
    partition: str = "gpu"
    state: str = "COMPLETED"
    submit: int | None = None
    nodes: str = "gpu1"
    node_count: int = 1
    name: str = "past"
    suspended_seconds: int = 0


def insert_history(testbed: Testbed, jobs: Iterable[PastJob], *, since: int) -> None:
    """Insert jobs and let slurmdbd roll up everything since ``since`` (a whole hour) again.

    The cluster's registration and the associations are dated back, or sreport would not count
    use before they existed.
    """
    if since % _HOUR:
        raise TestbedError(f"since is a whole hour, not {since}")
    statements = [_insert(testbed, job) for job in jobs]
    cluster = testbed.facts["cluster"]
    statements += [
        f"UPDATE {cluster}_event_table SET time_start = {since} WHERE node_name = ''",
        f"UPDATE {cluster}_assoc_table SET creation_time = {since}, mod_time = {since}",
        f"UPDATE cluster_table SET creation_time = {since}",
        f"UPDATE tres_table SET creation_time = {since}",
        f"DELETE FROM {cluster}_last_ran_table",
        f"INSERT INTO {cluster}_last_ran_table VALUES ({since}, {since}, {since})",
    ]
    testbed.stop("slurmdbd")
    _run_sql(testbed, statements)
    testbed.start("slurmdbd")


def await_rollup(testbed: Testbed, until: int) -> None:
    """Wait until slurmdbd has rolled up by the hour as far as ``until``."""
    cluster = testbed.facts["cluster"]
    question = f"SELECT hourly_rollup FROM {cluster}_last_ran_table"

    def is_done() -> bool:
        answer = _run_sql(testbed, [question]).split()
        return bool(answer) and int(answer[-1]) >= until

    testbed.wait_for(is_done, 60, "slurmdbd has rolled up the inserted hours")


def _insert(testbed: Testbed, job: PastJob) -> str:
    for text in (job.user, job.account, job.gpu_type, job.partition, job.nodes, job.name):
        if not _PLAIN.fullmatch(text):
            raise TestbedError(f"{text!r} is not plain enough for a table")
    cluster = testbed.facts["cluster"]
    entry = pwd.getpwnam(job.user)
    submit = job.start if job.submit is None else job.submit
    node_index = {"gpu1": "0", "gpu2": "1", "gpu[1-2]": "0-1"}[job.nodes]
    typed = _tres_id(testbed, f"gpu:{job.gpu_type}")
    untyped = _tres_id(testbed, "gpu")
    tres = (
        f"1={job.node_count},2=100,4={job.node_count},5=1,{untyped}={job.cards},{typed}={job.cards}"
    )
    association = (
        f"(SELECT id_assoc FROM {cluster}_assoc_table"
        f" WHERE user = '{job.user}' AND acct = '{job.account}')"
    )
    values = {
        "mod_time": job.end,
        "account": f"'{job.account}'",
        "cpus_req": job.node_count,
        "job_name": f"'{job.name}'",
        "id_assoc": association,
        "id_job": job.job_id,
        "id_qos": 1,
        "id_resv": 0,
        "id_wckey": 0,
        "id_user": entry.pw_uid,
        "id_group": entry.pw_gid,
        "het_job_id": 0,
        "het_job_offset": 4294967294,
        "state_reason_prev": 0,
        "nodelist": f"'{job.nodes}'",
        "nodes_alloc": job.node_count,
        "node_inx": f"'{node_index}'",
        "`partition`": f"'{job.partition}'",
        "priority": 1,
        "state": STATES[job.state],
        "timelimit": 60 * 24,
        "time_submit": submit,
        "time_eligible": submit,
        "time_start": job.start,
        "time_end": job.end,
        "time_suspended": job.suspended_seconds,
        "tres_alloc": f"'{tres}'",
        "tres_req": f"'{tres}'",
    }
    names = ", ".join(values)
    return (
        f"INSERT INTO {cluster}_job_table ({names}) VALUES ({', '.join(map(str, values.values()))})"
    )


def _tres_id(testbed: Testbed, name: str) -> int:
    rows = testbed.run_as(
        "root", ["sacctmgr", "-nP", "show", "tres", "format=id,type,name"], check=True
    ).stdout.split()
    for row in rows:
        number, kind, found = row.split("|")
        if kind == "gres" and found == name:
            return int(number)
    raise TestbedError(f"slurmdbd does not track gres/{name}: {json.dumps(rows)}")


def _run_sql(testbed: Testbed, statements: list[str]) -> str:
    done = subprocess.run(
        [
            "mysql",
            f"--socket={testbed.facts['mariadb_socket']}",
            "--user=root",
            "--batch",
            testbed.facts["mariadb_database"],
        ],
        input=";\n".join(statements) + ";\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise TestbedError(f"mysql: {done.stderr}")
    return done.stdout
