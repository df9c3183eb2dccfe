"""The rules of a site with their settings, who is exempt, and judging one run by all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from slurmwrap.model import JobRun
from slurmwrap.rules.breaker import BreakerSettings
from slurmwrap.rules.evidence import Evidence
from slurmwrap.rules.ladder import Action, History, decide
from slurmwrap.rules.reasons import Reason
from slurmwrap.rules.verdict import Verdict
from slurmwrap.rules.view import View, describe
from slurmwrap.setting import Duration, setting


class RuleSettings(Protocol):
    """What the settings of every rule have: a frozen dataclass made of ``setting()`` fields.

    A value that does not fit the others is refused with ValueError in ``__post_init__``.
    """

    @property
    def mode(self) -> str: ...
    @property
    def grace(self) -> Duration: ...


class Rule(Protocol):
    """One rule. Classes of the entry-point group ``slurmwrap.rules`` are called without
    arguments and must then look like this."""

    @property
    def id(self) -> str:
        """Its table in rules.toml, its docs page and its name in the store."""
        ...

    @property
    def settings_type(self) -> type[Any]:
        """The dataclass of its settings; called without arguments it gives the defaults."""
        ...

    def reach_seconds(self, settings: Any) -> int:
        """How far back on the run's clock the rule needs readings; 0: only the newest."""
        ...

    def evaluate(self, settings: Any, evidence: Evidence) -> Verdict:
        """The verdict at ``evidence.now``. Values in, value out: no clock, no I/O."""
        ...


@dataclass(frozen=True)
class Exemptions:
    """Whom rules leave alone, by what Slurm authorises. Job names never exempt."""

    accounts: tuple[str, ...] = setting((), "Accounts whose jobs are never acted on.")
    users: tuple[str, ...] = setting((), "Users whose jobs are never acted on.")
    qos: tuple[str, ...] = setting((), "QOS whose jobs are never acted on.")
    partitions: tuple[str, ...] = setting((), "Partitions whose jobs are never acted on.")
    reservations: tuple[str, ...] = setting((), "Reservations whose jobs are never acted on.")

    def find(self, run: JobRun) -> Reason | None:
        """Why the run is exempt; None: it is not.

        A component of a heterogeneous job is: cancelling it ends the whole job (seen on
        22.05), of which the other components may be at work.
        """
        if run.het_job_id is not None:
            return Reason(template="het-job", values={"job": run.het_job_id})
        held = (
            ("account", run.account, self.accounts),
            ("user", run.user, self.users),
            ("qos", run.qos, self.qos),
            ("partition", run.partition, self.partitions),
            ("reservation", run.reservation, self.reservations),
        )
        for field, value, exempt in held:
            if value and value in exempt:
                return Reason(template="exempt", values={"field": field, "value": value})
        return None


@dataclass(frozen=True)
class ConfiguredRule:
    """A rule with the settings a site gave it."""

    rule: Rule
    settings: RuleSettings


@dataclass(frozen=True)
class RuleSet:
    """What rules.toml says."""

    rules: tuple[ConfiguredRule, ...]
    exemptions: Exemptions = Exemptions()
    breaker: BreakerSettings = BreakerSettings()

    @property
    def reach_seconds(self) -> int:
        """How far back on a run's clock its readings are needed, by the rule that needs most."""
        return max((item.rule.reach_seconds(item.settings) for item in self.rules), default=0)


class Judgement(Struct, frozen=True, kw_only=True):
    """What one rule makes of one run now."""

    verdict: Verdict
    action: Action
    view: View


def judge(
    rules: RuleSet, evidence: Evidence, history: History, language: str = "en"
) -> tuple[Judgement, ...]:
    """What every rule makes of a run, in the order of the rule set."""
    exemption = rules.exemptions.find(evidence.run)
    judgements: list[Judgement] = []
    for configured in rules.rules:
        verdict = configured.rule.evaluate(configured.settings, evidence)
        mode, grace = configured.settings.mode, configured.settings.grace
        action = decide(
            verdict,
            mode=mode,
            grace_seconds=grace,
            history=history,
            now=evidence.now,
            exemption=exemption,
        )
        view = describe(
            verdict,
            mode=mode,
            grace_seconds=grace,
            history=history,
            exemption=exemption,
            language=language,
        )
        judgements.append(Judgement(verdict=verdict, action=action, view=view))
    return tuple(judgements)
