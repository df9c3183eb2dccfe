"""Past jobs put into slurmdbd's own tables, so that sacct and sreport tell of months gone by."""

from __future__ import annotations

import json
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.cluster import Testbed
from testbed.failures import TestbedError

# Numbers of slurm.h: enum job_states, and the JOB_REQUEUE flag of a run that was requeued.
STATES = {
    "RUNNING": 1,
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
_NO_VALUE = 0xFFFFFFFE  # NO_VAL of slurm.h
_HOUR = 3600
_NODE_INDEXES = {"gpu1": "0", "gpu2": "1", "gpu[1-2]": "0-1"}


@dataclass(frozen=True)
class PastJob:
    """One run as slurmdbd would have recorded it. Times are UTC epoch seconds."""

    job_id: int
    user: str
    account: str
    start: int
    """0: cancelled before it began; it has no nodes and no cards then."""
    end: int
    """0: it runs."""
    gpu_type: str
    """Empty: cards of no type."""
    cards: int
    """Over all nodes."""
    partition: str = "gpu"
    state: str = "COMPLETED"
    submit: int | None = None
    """None: when it began. Slurm has one record per job id and submit time."""
    nodes: str = "gpu1"
    node_count: int = 1
    name: str = "past"
    suspensions: tuple[tuple[int, int], ...] = ()
    """Stretches ``(from, to)`` of suspension."""
    other_cards: Mapping[str, int] = field(default_factory=dict)
    """Cards of further types, over all nodes."""
    array_job_id: int | None = None
    array_task_id: int | None = None

    @property
    def all_cards(self) -> int:
        return self.cards + sum(self.other_cards.values())


def insert_history(testbed: Testbed, jobs: Iterable[PastJob], *, since: int) -> None:
    """Insert jobs and let slurmdbd roll up everything since ``since`` (a whole hour) again.

    The cluster's registration and the associations are dated back, or sreport would not count
    use before they existed.
    """
    if since % _HOUR:
        raise TestbedError(f"since is a whole hour, not {since}")
    cluster = testbed.facts["cluster"]
    statements = [
        *_inserts(testbed, jobs),
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


def insert_jobs(testbed: Testbed, jobs: Iterable[PastJob]) -> None:
    """Insert jobs as they would reach slurmdbd at this moment; sreport is not asked again."""
    _run_sql(testbed, _inserts(testbed, jobs))


def await_rollup(testbed: Testbed, until: int) -> None:
    """Wait until slurmdbd has rolled up by the hour as far as ``until``."""
    cluster = testbed.facts["cluster"]
    question = f"SELECT hourly_rollup FROM {cluster}_last_ran_table"

    def is_done() -> bool:
        answer = _run_sql(testbed, [question]).split()
        return bool(answer) and int(answer[-1]) >= until

    testbed.wait_for(is_done, 60, "slurmdbd has rolled up the inserted hours")


def _inserts(testbed: Testbed, jobs: Iterable[PastJob]) -> list[str]:
    tres_ids = _read_tres_ids(testbed)
    cluster = testbed.facts["cluster"]
    return [statement for job in jobs for statement in _insert(cluster, job, tres_ids)]


def _insert(cluster: str, job: PastJob, tres_ids: Mapping[str, int]) -> list[str]:
    for text in (job.user, job.account, job.partition, job.nodes, job.name):
        if not _PLAIN.fullmatch(text):
            raise TestbedError(f"{text!r} is not plain enough for a table")
    entry = pwd.getpwnam(job.user)
    submit = job.start if job.submit is None else job.submit
    tres = _describe_tres(job, tres_ids)
    association = (
        f"(SELECT id_assoc FROM {cluster}_assoc_table"
        f" WHERE user = '{job.user}' AND acct = '{job.account}')"
    )
    is_task = job.array_job_id is not None
    values = {
        "mod_time": job.end or submit,
        "account": f"'{job.account}'",
        "cpus_req": job.node_count,
        "job_name": f"'{job.name}'",
        "id_assoc": association,
        "id_job": job.job_id,
        "id_array_job": job.array_job_id if is_task else 0,
        "id_array_task": job.array_task_id if is_task else _NO_VALUE,
        "id_qos": 1,
        "id_resv": 0,
        "id_wckey": 0,
        "id_user": entry.pw_uid,
        "id_group": entry.pw_gid,
        "het_job_id": 0,
        "het_job_offset": _NO_VALUE,
        "state_reason_prev": 0,
        "nodelist": f"'{job.nodes}'" if job.start else "'None assigned'",
        "nodes_alloc": job.node_count if job.start else 0,
        "node_inx": f"'{_NODE_INDEXES[job.nodes]}'" if job.start else "''",
        "`partition`": f"'{job.partition}'",
        "priority": 1,
        "state": STATES[job.state],
        "timelimit": 60 * 24,
        "time_submit": submit,
        "time_eligible": submit,
        "time_start": job.start,
        "time_end": job.end,
        "time_suspended": sum(end - begin for begin, end in job.suspensions),
        "tres_alloc": f"'{tres}'" if job.start else "''",
        "tres_req": f"'{tres}'",
    }
    names = ", ".join(values)
    return [
        f"INSERT INTO {cluster}_job_table ({names})"
        f" VALUES ({', '.join(map(str, values.values()))})",
        *(
            f"INSERT INTO {cluster}_suspend_table (job_db_inx, id_assoc, time_start, time_end)"
            f" SELECT max(job_db_inx), {association}, {begin}, {end} FROM {cluster}_job_table"
            for begin, end in job.suspensions
        ),
    ]


def _describe_tres(job: PastJob, tres_ids: Mapping[str, int]) -> str:
    """slurmdbd's form: numbers of tres_table instead of names."""
    typed = dict(job.other_cards)
    if job.gpu_type:
        typed[job.gpu_type] = typed.get(job.gpu_type, 0) + job.cards
    entries = [f"1={job.node_count},2=100,4={job.node_count},5=1"]
    if job.all_cards:
        entries.append(f"{_tres_id(tres_ids, 'gpu')}={job.all_cards}")
    entries += [f"{_tres_id(tres_ids, f'gpu:{name}')}={count}" for name, count in typed.items()]
    return ",".join(entries)


def _tres_id(tres_ids: Mapping[str, int], name: str) -> int:
    if name not in tres_ids:
        raise TestbedError(f"slurmdbd does not track gres/{name}: {json.dumps(dict(tres_ids))}")
    return tres_ids[name]


def _read_tres_ids(testbed: Testbed) -> dict[str, int]:
    """Numbers of the generic resources that slurmdbd tracks, by name."""
    rows = testbed.run_as(
        "root", ["sacctmgr", "-nP", "show", "tres", "format=id,type,name"], check=True
    ).stdout.split()
    fields = (row.split("|") for row in rows)
    return {name: int(number) for number, kind, name in fields if kind == "gres"}


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
