"""Where settings come from, and what is refused."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from slurmwrap.config import Config, load_config
from slurmwrap.config.settings import setting_rows
from slurmwrap.errors import ConfigError, UnknownNameError


def write(folder: Path, text: str) -> Path:
    path = folder / "slurmwrap.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_everything_is_default(tmp_path: Path) -> None:
    """An empty file changes nothing, and says so."""
    loaded = load_config(write(tmp_path, ""), {})
    assert loaded.config == Config()
    assert loaded.origins == {}


def test_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    """Every value remembers where it came from."""
    path = write(tmp_path, '[daemon]\nurl = "http://file:1"\nbind = "file:1"\n')
    loaded = load_config(path, {"SLURMWRAP_DAEMON_URL": "http://env:1"})
    assert loaded.config.daemon.url == "http://env:1"
    assert loaded.config.daemon.bind == "file:1"
    assert loaded.config.daemon.user == "slurmwrap"
    assert loaded.origins == {
        "daemon.url": "environment SLURMWRAP_DAEMON_URL",
        "daemon.bind": f"file {path}",
    }


def test_the_file_is_found_by_name_in_the_environment(tmp_path: Path) -> None:
    """$SLURMWRAP_CONFIG names the file; the argument beats it."""
    path = write(tmp_path, '[notify]\nlanguage = "zh"\n')
    assert load_config(None, {"SLURMWRAP_CONFIG": str(path)}).config.notify.language == "zh"
    other = tmp_path / "other.toml"
    other.write_text("")
    assert load_config(other, {"SLURMWRAP_CONFIG": str(path)}).file == other


def test_every_form_is_read_from_a_file(tmp_path: Path) -> None:
    """Text, numbers, durations, lists, tables and amounts arrive in their types."""
    text = """
[agents]
read_every = 2
spool_messages = 10
interval = "1min"
users = ["a", "b"]
addresses = { gpu1 = ["10.0.0.1", "10.0.1.1"] }
cards = { gpu1 = [3, 2, 1, 0] }
[[budget]]
account = "physics"
card_hours = "1000.5"
thresholds = [50, 80]
[[budget]]
user = "bob"
money = 70
period = "year"
"""
    config = load_config(write(tmp_path, text), {}).config
    assert config.agents.read_every == 2.0
    assert config.agents.spool_messages == 10
    assert config.agents.interval == 60
    assert config.agents.users == ("a", "b")
    assert config.agents.addresses == {"gpu1": ("10.0.0.1", "10.0.1.1")}
    assert config.agents.cards == {"gpu1": (3, 2, 1, 0)}
    assert config.budget[0].card_hours == Decimal("1000.5")
    assert config.budget[0].thresholds == (50, 80)
    assert config.budget[1].money == Decimal(70)


def test_every_form_is_read_from_the_environment(tmp_path: Path) -> None:
    """A variable is text: numbers, durations and lists are read from it."""
    variables = {
        "SLURMWRAP_AGENTS_READ_EVERY": "0.5",
        "SLURMWRAP_AGENTS_SPOOL_MESSAGES": "7",
        "SLURMWRAP_AGENTS_INTERVAL": "10s",
        "SLURMWRAP_AGENTS_USERS": "a, b,",
    }
    agents = load_config(write(tmp_path, ""), variables).config.agents
    assert (agents.read_every, agents.spool_messages, agents.interval) == (0.5, 7, 10)
    assert agents.users == ("a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[demon]\n", "unknown section 'demon' (did you mean 'daemon'?)"),
        ("[daemon]\nurll = 'x'\n", "unknown setting 'daemon.urll' (did you mean 'daemon.url'?)"),
        ("[notify]\nlanguage = 'fr'\n", "unknown value of notify.language 'fr'; known: en, zh"),
        ("[[budget]]\naccount='a'\nmony='1'\n", "unknown setting 'budget.mony'"),
        ("[[budget]]\naccount='a'\nmoney='1'\nperiod='week'\n", "unknown value of budget.period"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(
    tmp_path: Path, text: str, words: str
) -> None:
    """A typing error is never ignored."""
    with pytest.raises(UnknownNameError) as raised:
        load_config(write(tmp_path, text), {})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is not valid TOML"),
        ("[collect]\ninterval = 30\n", "collect.interval: 30 must be a duration in quotes"),
        ('[collect]\ninterval = "30"\n', "collect.interval: '30' is not a duration"),
        ('[collect]\ninterval = "0s"\n', "longer than zero"),
        ("[daemon]\nurl = 5\n", "daemon.url: 5 must be text"),
        ("[agents]\nspool_messages = true\n", "must be a whole number"),
        ("[agents]\nspool_messages = 1.5\n", "must be a whole number"),
        ("[agents]\nread_every = nan\n", "must be a finite number"),
        ("[agents]\nusers = [1]\n", "must be text"),
        ("[agents]\nusers = 1\n", "must be a list"),
        ("[agents]\ncards = [1]\n", "must be a table"),
        ("daemon = 5\n", "[daemon] must be a table"),
        ('[billing]\ntimezone = "Mars/Olympus"\n', "'Mars/Olympus' is not a time zone"),
        ('[billing]\ntimezone = "../../etc/passwd"\n', "is not a time zone"),
        ("budget = 5\n", "[[budget]] blocks"),
        ("[[budget]]\nmoney = '1'\n", "names neither account nor user"),
        ("[[budget]]\naccount = 'a'\n", "needs either card_hours or money"),
        (
            "[[budget]]\naccount='a'\nmoney='1'\ncard_hours='1'\n",
            "needs either card_hours or money",
        ),
        ("[[budget]]\naccount='a'\nmoney=1.5\n", "an amount in quotes"),
        ("[[budget]]\naccount='a'\nmoney='-1'\n", "not a positive amount"),
        ("[[budget]]\naccount='a'\nmoney='NaN'\n", "not a positive amount"),
        ("[[budget]]\naccount='a'\nmoney='1'\nthresholds=[]\n", "positive percentages"),
        ("[[budget]]\naccount='a'\nmoney='1'\nthresholds=[0]\n", "positive percentages"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, text: str, words: str) -> None:
    """The message names the setting, what was found and what was expected."""
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, text), {})
    assert words in str(raised.value)


def test_a_wrong_value_of_the_environment_is_named(tmp_path: Path) -> None:
    """A variable is checked as a file is."""
    with pytest.raises(ConfigError, match=r"agents.spool_messages: 'many' must be a whole number"):
        load_config(write(tmp_path, ""), {"SLURMWRAP_AGENTS_SPOOL_MESSAGES": "many"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[staging]\nheadroom = 1.5\n",
            "staging.headroom: 1.5 is out of bounds: it must be from 0 to 0.9",
        ),
        ("[staging]\nheadroom = -0.1\n", "it must be from 0 to 0.9"),
        (
            "[staging]\nworkers = 0\n",
            "staging.workers: 0 is out of bounds: it must be from 1 to 256",
        ),
        ("[agents]\nspool_messages = 0\n", "agents.spool_messages: 0 is out of bounds"),
        (
            "[agents]\nread_every = 0\n",
            "agents.read_every: 0 is out of bounds: it must be from 0.05",
        ),
        ('[agents]\ninterval = "1h"\n', "'1h' is out of bounds: it must be from 1 s to 5 min"),
        ('[accounting]\noverlap = "1s"\n', "it must be from 1 min to 366 d"),
        (
            '[submit]\nsignal_before_limit = "1d"\n',
            "'1d' is out of bounds: it must be from 1 s to 18 h 12 min",
        ),
        (
            '[agents]\ninterval = "2s"\nread_every = 3\n',
            "[agents] read_every (3 s) must not be longer than interval (2 s)",
        ),
        ("[accounting]\ncard_gres = []\n", "[accounting] card_gres names no resource"),
    ],
)
def test_values_out_of_bounds_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """The message names the setting, the bounds and what was found; the file too."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {})
    assert words in raised.value.message
    assert str(path) in raised.value.message


def test_bounds_themselves_are_allowed(tmp_path: Path) -> None:
    """From and to include their ends."""
    text = "[staging]\nheadroom = 0\nworkers = 256\n[agents]\nread_every = 30\n"
    config = load_config(write(tmp_path, text), {}).config
    assert (config.staging.headroom, config.staging.workers) == (0, 256)
    assert config.agents.read_every == config.agents.interval == 30


def test_a_variable_is_bound_as_the_file_is(tmp_path: Path) -> None:
    """The message names the variable."""
    words = (
        r"environment SLURMWRAP_STAGING_WORKERS: staging\.workers: '0' is out of bounds:"
        " it must be from 1 to 256"
    )
    with pytest.raises(ConfigError, match=words):
        load_config(write(tmp_path, ""), {"SLURMWRAP_STAGING_WORKERS": "0"})


def test_no_default_is_out_of_its_own_bounds() -> None:
    """What is shipped can be written into a file."""
    wrong = [
        row.name
        for row in setting_rows()
        if (row.at_least is not None and row.default < row.at_least)
        or (row.at_most is not None and row.default > row.at_most)
    ]
    assert wrong == []


def test_a_misspelt_variable_is_refused(tmp_path: Path) -> None:
    """A variable of a known section that is no setting is never ignored."""
    with pytest.raises(UnknownNameError) as raised:
        load_config(write(tmp_path, ""), {"SLURMWRAP_DAEMON_URLL": "http://x"})
    assert (
        "unknown variable 'SLURMWRAP_DAEMON_URLL' (did you mean 'SLURMWRAP_DAEMON_URL'?)"
        in raised.value.message
    )


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    """What the supervisor tells its job, and what our tests use, is no setting."""
    names = (
        "CONFIG METRICS RESUME DATA DATA_0 DATA_BY_NODE REAL_DATA DEV_VENV DEMO_KEEP TESTBED"
        " TESTBED_NAME TESTBED_DAEMON_PORT TESTS_ON_WHEEL RUN SUBMIT"
    )
    variables = {f"SLURMWRAP_{name}": "x" for name in names.split() if name != "CONFIG"}
    assert load_config(write(tmp_path, ""), variables).origins == {}


def test_a_file_that_is_not_there_is_an_error_when_it_was_named(tmp_path: Path) -> None:
    """Silently using defaults would bill in the wrong zone."""
    with pytest.raises(ConfigError, match="can't read configuration file"):
        load_config(tmp_path / "none.toml", {})


def test_a_file_that_is_no_utf_8_is_an_error(tmp_path: Path) -> None:
    """Bytes that are no text are reported as such."""
    path = tmp_path / "slurmwrap.toml"
    path.write_bytes(b'[slurm]\ncluster = "\xff"\n')
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(path, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    """The reason of the system is in the message."""
    path = write(tmp_path, "")
    path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        load_config(path, {})


def test_every_setting_says_what_it_means() -> None:
    """The table feeds the documentation: no row is silent, and no name occurs twice."""
    rows = setting_rows()
    assert all(row.meaning.endswith((".", "org")) for row in rows)
    assert len({row.name for row in rows}) == len(rows)


def test_no_default_contradicts_its_own_choices() -> None:
    """A default is one of the words that are allowed."""
    wrong = [row.name for row in setting_rows() if row.choices and row.default not in row.choices]
    assert wrong == []
