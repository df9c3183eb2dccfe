"""The life of `slurmwrapd serve`: one instance, its scheduler, its server, its signals."""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import resource
import select
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from slurmwrap.config import Config
from slurmwrap.errors import (
    AlreadyRunningError,
    ConfigError,
    DaemonUnavailableError,
    SlurmwrapError,
)
from slurmwrapd.accounting import read_accounting
from slurmwrapd.budgets import check_budgets
from slurmwrapd.collect import collect
from slurmwrapd.health import task_intervals
from slurmwrapd.http import make_application
from slurmwrapd.outbox import deliver_owed
from slurmwrapd.protocol import BoundedProtocol
from slurmwrapd.service import Service
from slurmwrapd.systemd import READY, STOPPING, WATCHDOG, notify
from slurmwrapd.watch import watch

log = logging.getLogger("slurmwrapd")

_WATCHDOG_SECONDS = 10

_FILES = 8192
_CONNECTIONS = 2048

TASKS: dict[str, Callable[[Service], str]] = {
    "collect": collect,
    "accounting": read_accounting,
    "watch": watch,
    "budgets": check_budgets,
    "outbox": deliver_owed,
}
"""Every periodic task: a plain function that says what it did in one line."""


def run_task(service: Service, name: str) -> bool:
    """Run one task now and keep how it fared; True when it succeeded."""
    started = time.monotonic()
    try:
        words = TASKS[name](service)
    except SlurmwrapError as error:
        service.store.health.note_failure(name, service.clock.now(), str(error))
        log.error("%s failed: %s", name, error)
        return False
    except Exception as error:
        service.store.health.note_failure(
            name, service.clock.now(), f"{type(error).__name__}: {error}"
        )
        log.exception("%s failed unexpectedly", name)
        return False
    service.store.health.note_success(name, service.clock.now())
    service.succeeded.add(name)
    if words:
        log.info("%s: %s (%.2f s)", name, words, time.monotonic() - started)
    return True


def run_once(service: Service) -> bool:
    """Run every task once, in order, for tests and `serve --once`; True when all succeeded."""
    outcomes = [run_task(service, name) for name in TASKS]
    return all(outcomes)


def serve(config: Config, load: Callable[[], Config]) -> None:
    """Serve until told to stop. TERM or INT drains, a second one stops at once, HUP reloads.

    Args:
        load: reads the settings again, for a reload.

    Raises:
        AlreadyRunningError: another instance has the database.
        ConfigError: started as a user that clients don't expect.
        SlurmwrapError: rules, prices or a database that can't be used.
    """
    _check_user(config)
    _raise_file_limit()
    with (
        only_instance(Path(config.daemon.database)),
        closing(open_listener(config.daemon.bind)) as listener,
    ):
        service = Service.start(config)
        try:
            _serve_until_told(service, load, listener)
        finally:
            service.store.close()


def _serve_until_told(
    service: Service, load: Callable[[], Config], listener: socket.socket
) -> None:
    asked = {"stop": False, "reload": False}
    # The interpreter writes a byte here the moment a signal comes: no lock, no lost wake-up.
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def on_stop(number: int, frame: FrameType | None) -> None:
        # A handler only takes note; the loop below acts.
        if asked["stop"]:
            # Threads that wait for Slurm can't be ended; the database survives a kill.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        asked["stop"] = True

    def on_reload(number: int, frame: FrameType | None) -> None:
        asked["reload"] = True

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGHUP, on_reload)

    server = make_server(service)
    thread = threading.Thread(target=server.run, args=([listener],), name="http")
    scheduler = _make_scheduler(service)
    _learn_who_is_who(service)
    thread.start()
    try:
        scheduler.start()
        notify(READY)
        log.info(
            "serving at %s with %s", service.config.daemon.bind, service.config.daemon.database
        )
        while not asked["stop"] and thread.is_alive():
            if select.select([woken], [], [], _WATCHDOG_SECONDS)[0]:
                os.read(woken, 1024)
            notify(WATCHDOG)
            if asked["reload"]:
                asked["reload"] = False
                _reload(service, load, scheduler)
        if not asked["stop"]:
            raise DaemonUnavailableError(
                f"the server at {service.config.daemon.bind} ended by itself",
                hint="the service's log says why; systemd starts it again",
            )
    finally:
        notify(STOPPING)
        log.info("stopping: waiting for requests and tasks under way")
        server.should_exit = True
        scheduler.shutdown(wait=True)
        thread.join()


def _learn_who_is_who(service: Service) -> None:
    """Ask slurmdbd before the first request: until it has answered nobody is privileged."""
    with suppress(SlurmwrapError):
        service.associations()  # it logs a failure, and is asked again


def open_listener(bind: str) -> socket.socket:
    """A socket that listens at ``daemon.bind``, taken before anything else is begun.

    Raises:
        ConfigError: no address, or one that can't be had.
    """
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"daemon.bind: {bind!r} is not ADDRESS:PORT, e.g. 127.0.0.1:8642")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends without delay only on sockets that say that they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
        listener.listen(1024)
        return listener
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"can't listen at {bind} (daemon.bind): {error.strerror}",
            hint="is another program using that address? `ss -ltnp` says which",
        ) from error


def _raise_file_limit() -> None:
    """Room for every connection: systemd gives 1,024 files, and more to those who ask."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_server(service: Service) -> uvicorn.Server:
    """The HTTP server of a service; it is run with a listening socket."""
    settings = uvicorn.Config(
        make_application(service),
        # One address can't hold all connections, and none is held without use.
        http=partial(  # type: ignore[arg-type]
            BoundedProtocol, refusals=service.refusals, held=Counter()
        ),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        limit_concurrency=_CONNECTIONS,
        # Shorter than the interval of agents and jobs: thousands would stay connected.
        timeout_keep_alive=5,
        timeout_graceful_shutdown=10,
        server_header=False,
    )
    return uvicorn.Server(settings)


def _make_scheduler(service: Service) -> BackgroundScheduler:
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(len(TASKS) + 1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 60},
        timezone=UTC,
    )
    for name, seconds in task_intervals(service).items():
        scheduler.add_job(
            run_task,
            "interval",
            args=(service, name),
            seconds=seconds,
            id=name,
            next_run_time=datetime.now(UTC),
        )
    scheduler.add_listener(
        _tell_of_trouble, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
    )
    return scheduler


def _tell_of_trouble(event: JobEvent) -> None:
    """APScheduler only logs what goes wrong, at a level that nobody sees."""
    if event.code == EVENT_JOB_ERROR:
        log.error("task %s raised %r", event.job_id, event.exception)
    elif event.code == EVENT_JOB_MISSED:
        log.warning("task %s was missed", event.job_id)
    else:
        log.warning("task %s is still running; this turn is left out", event.job_id)


def _reload(service: Service, load: Callable[[], Config], scheduler: BackgroundScheduler) -> None:
    try:
        service.reload(load())
    except SlurmwrapError as error:
        log.error("the old settings stay in force: %s", error)
        return
    except Exception:
        # A file that surprises its reader must not end a service that works.
        log.exception("the old settings stay in force")
        return
    for name, seconds in task_intervals(service).items():
        scheduler.reschedule_job(name, trigger="interval", seconds=seconds)
    log.info("settings, rules and prices were read again")


def _check_user(config: Config) -> None:
    """Clients seal their requests for daemon.user: as anybody else we could read none."""
    expected = config.daemon.user
    try:
        uid = pwd.getpwnam(expected).pw_uid
    except KeyError:
        raise ConfigError(
            f"user {expected!r} (daemon.user) does not exist",
            hint="create it as docs/install.md shows, or set daemon.user",
        ) from None
    if os.getuid() != uid:
        name = pwd.getpwuid(os.getuid()).pw_name
        raise ConfigError(
            f"slurmwrapd serve runs as {expected!r} (daemon.user), but was started as {name!r}",
            hint="start it through systemd, or with `runuser -u "
            + expected
            + " -- slurmwrapd serve`",
        )


@contextmanager
def only_instance(database: Path) -> Iterator[None]:
    """Hold the lock beside the database: one process owns the file.

    Raises:
        AlreadyRunningError: another process holds it.
        ConfigError: the folder is missing or not ours.
    """
    path = database.with_name(database.name + ".lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"can't write beside the database {database}: {error.strerror}",
            hint="daemon.database must lie in a folder that the service's user owns",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                f"another slurmwrapd has the database {database}",
                hint="one service owns the file; stop that one first",
            ) from None
        yield
    finally:
        os.close(descriptor)
