"""Rules: pure functions from settings and evidence to a verdict with a reason.

What a caller does each tick, for each run that slurmctld says is RUNNING or SUSPENDED:

1. ``rules = slurmwrap.config.rules_file.load_rules(path)`` once, and at a reload.
2. ``start = readings_start(run, now, rules.reach_seconds, suspensions)``: fetch the readings
   of the run's cards from there, and say so in ``Evidence(readings_from=start, ...)``.
3. ``judge(rules, evidence, history)`` gives per rule a ``Judgement``: the verdict, what to do
   (``action.kind``), and the view for `slurmwrap status` (``view``, the fields of RuleView).
   ``history`` holds the run's own records; keep one WarningRecord per WARN (``observed`` for
   WOULD_WARN) and one CancelRecord per CANCEL or WOULD_CANCEL, with
   ``episode_since=action.episode_since`` and ``recorded_at=action.at``, and set
   ``delivered_at`` once a channel of the user has accepted the warning.
4. Collect the runs of all CANCEL actions and ask ``check_breaker`` once: a reason means that
   nothing at all is cancelled in this tick.
5. Just before each cancel: read the run and its readings again, evaluate the rule again, and
   ask ``recheck(decided, run_now, verdict_now)``: a reason means leave it alone.

``verdict.reason`` keeps a template id with values: ``reason.text("en")`` or ``text("zh")``.
Every rule wants to hear from the run's nodes: metrics without fresh readings never cancel a run
that holds cards.
"""

from __future__ import annotations

from slurmwrap.rules.breaker import BreakerSettings, check_breaker
from slurmwrap.rules.evidence import Evidence, readings_start
from slurmwrap.rules.ladder import (
    Action,
    ActionKind,
    CancelRecord,
    History,
    WarningRecord,
    decide,
    recheck,
)
from slurmwrap.rules.reasons import Reason
from slurmwrap.rules.ruleset import (
    ConfiguredRule,
    Exemptions,
    Judgement,
    Rule,
    RuleSet,
    RuleSettings,
    judge,
)
from slurmwrap.rules.verdict import State, Verdict
from slurmwrap.rules.view import View, describe

__all__ = [
    "Action",
    "ActionKind",
    "BreakerSettings",
    "CancelRecord",
    "ConfiguredRule",
    "Evidence",
    "Exemptions",
    "History",
    "Judgement",
    "Reason",
    "Rule",
    "RuleSet",
    "RuleSettings",
    "State",
    "Verdict",
    "View",
    "WarningRecord",
    "check_breaker",
    "decide",
    "describe",
    "judge",
    "readings_start",
    "recheck",
]
