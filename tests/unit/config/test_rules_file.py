"""rules.toml: what is read, what is refused, and that what we ship is valid."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmwrap.config.rules_file import find_rules, load_rules, parse_rules, rule_setting_rows
from slurmwrap.errors import ConfigError, UnknownNameError
from slurmwrap.model import RunKey
from slurmwrap.resources import shipped_folder
from slurmwrap.rules import Evidence, Exemptions, Reason, RuleSet, State, Verdict
from slurmwrap.rules.breaker import BreakerSettings
from slurmwrap.rules.idle import IdleSettings
from slurmwrap.rules.plateau import PlateauSettings
from slurmwrap.setting import Duration, setting


def load_text(tmp_path: Path, text: str) -> RuleSet:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return load_rules(path)


def settings_of(rules: RuleSet) -> dict[str, object]:
    return {item.rule.id: item.settings for item in rules.rules}


def test_shipped_file_is_complete_valid_and_only_observes() -> None:
    """etc/rules.toml names every setting with its default; nothing acts as shipped."""
    path = shipped_folder("etc") / "rules.toml"
    rules = load_rules(path)
    assert settings_of(rules) == {"idle-gpu": IdleSettings(), "plateau": PlateauSettings()}
    assert (rules.exemptions, rules.breaker) == (Exemptions(), BreakerSettings())
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    written = {f"{table}.{key}" for table, values in document.items() for key in values}
    assert written == {row.name for row in rule_setting_rows()}
    assert {item.settings.mode for item in rules.rules} == {"observe"}


def test_rule_without_a_table_observes() -> None:
    """What the file does not mention works with its defaults."""
    rules = parse_rules({}, "rules.toml")
    assert settings_of(rules) == {"idle-gpu": IdleSettings(), "plateau": PlateauSettings()}


def test_values_are_read(tmp_path: Path) -> None:
    """Durations are text with a unit, lists are lists, what is not written is the default."""
    rules = load_text(
        tmp_path,
        """
        [idle-gpu]
        mode = "enforce"
        threshold_percent = 10
        window = "40s"
        warn_after = "20s"
        grace = "10s"
        scope = "any"
        [exemptions]
        users = ["alice", "bob"]
        [breaker]
        max_share = 0.5
        """,
    )
    assert settings_of(rules)["idle-gpu"] == IdleSettings(
        mode="enforce",
        threshold_percent=10,
        window=Duration(40),
        warn_after=Duration(20),
        grace=Duration(10),
        scope="any",
    )
    assert settings_of(rules)["plateau"] == PlateauSettings()
    assert rules.exemptions == Exemptions(users=("alice", "bob"))
    assert rules.breaker == BreakerSettings(max_share=0.5)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[idle]\n",
            UnknownNameError,
            "unknown rule 'idle' (did you mean 'idle-gpu'?);"
            " known: breaker, exemptions, idle-gpu, plateau",
        ),
        ("[idle-gpus]\n", UnknownNameError, "did you mean 'idle-gpu'?"),
        (
            "[plateau]\npatiense = 3\n",
            UnknownNameError,
            "unknown setting 'plateau.patiense' (did you mean 'plateau.patience'?);"
            " known: plateau.grace, plateau.mode, plateau.patience",
        ),
        (
            '[plateau]\nmode = "kill"\n',
            UnknownNameError,
            "unknown value of plateau.mode 'kill'; known: enforce, observe, warn",
        ),
        ("[idle-gpu]\nwindow = 7200\n", ConfigError, "must be a duration in quotes"),
        ('[idle-gpu]\ngrace = "0s"\n', ConfigError, "must be longer than zero"),
        ('[plateau]\ngrace = "0s"\n', ConfigError, "must be longer than zero"),
        (
            "[idle-gpu]\nthreshold_percent = 33\n",
            ConfigError,
            "[idle-gpu] threshold_percent must be an edge of the utilisation histogram"
            " (1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100), not 33",
        ),
        (
            '[idle-gpu]\nwindow = "1h"\n',
            ConfigError,
            "[idle-gpu] warn_after (1 h 30 min) must be shorter than window (1 h)",
        ),
        ("[plateau]\npatience = 0\n", ConfigError, "[plateau] patience is at least 1, not 0"),
        ('[plateau]\npatience = "three"\n', ConfigError, "must be a whole number"),
        ("[breaker]\nmax_share = 20\n", ConfigError, "[breaker] max_share is above 0"),
        ('[exemptions]\nnames = ["x"]\n', UnknownNameError, "known: exemptions.accounts"),
        ("plateau = 3\n", ConfigError, "plateau must be a table: [plateau]"),
        ("[plateau\n", ConfigError, "is not valid TOML"),
    ],
)
def test_mistakes_are_refused_with_what_is_known(
    tmp_path: Path, text: str, kind: type[ConfigError], message: str
) -> None:
    """A typo never silently switches a rule off or on."""
    with pytest.raises(kind) as caught:
        load_text(tmp_path, text)
    assert message in caught.value.message
    assert str(tmp_path) in f"{caught.value.message} {caught.value.hint}"


def test_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The rules file that is not there is named, with the next step."""
    with pytest.raises(ConfigError) as caught:
        load_rules(tmp_path / "rules.toml")
    assert "can't read rules file" in caught.value.message
    assert caught.value.hint is not None
    assert "rules.file" in caught.value.hint


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """A file in another encoding is a configuration error, not a crash."""
    path = tmp_path / "rules.toml"
    path.write_bytes(b"[plateau]\n# \xff\xfe\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_rules(path)


def test_our_rules_are_found_through_the_entry_points() -> None:
    """The group slurmwrap.rules offers what pyproject.toml declares."""
    assert list(find_rules()) == ["idle-gpu", "plateau"]


@dataclass(frozen=True)
class CurfewSettings:
    """A site's own settings."""

    mode: str = setting("observe", "How far it may go.", choices=("observe", "warn", "enforce"))
    grace: Duration = setting(Duration(60), "Wait.")
    hour: int = setting(22, "From this hour on.")


class Curfew:
    """A site's own rule."""

    id = "curfew"
    settings_type = CurfewSettings

    def reach_seconds(self, settings: CurfewSettings) -> int:
        return 0

    def evaluate(self, settings: CurfewSettings, evidence: Evidence) -> Verdict:
        reason = Reason(template="text", values={"text": f"after {settings.hour}"})
        return Verdict(
            rule=self.id,
            run=RunKey(cluster="c", job_id=1, start=0),
            state=State.FINE,
            reason=reason,
            at=evidence.now,
        )


def test_site_rule_gets_its_own_table() -> None:
    """A rule of a site is configured, and checked, like ours."""
    rules = parse_rules({"curfew": {"hour": 20}}, "rules.toml", {"curfew": Curfew()})
    assert settings_of(rules) == {"curfew": CurfewSettings(hour=20)}
    with pytest.raises(UnknownNameError, match=r"known: curfew\.grace, curfew\.hour"):
        parse_rules({"curfew": {"our": 20}}, "rules.toml", {"curfew": Curfew()})
