"""URL templates for one person."""

from __future__ import annotations

from typing import Any

import pytest

from slurmwrap.errors import NotifyError
from slurmwrap.notify.delivery import deliver
from slurmwrap.notify.targets import expand_targets


def test_each_template_is_expanded_once() -> None:
    """{user} is replaced in every URL, and equal targets are one."""
    urls = ["mailto://h?to={user}@x.org", "json://h/{user}", "json://h/all", "json://h/all"]
    assert expand_targets(urls, "alice") == (
        "mailto://h?to=alice@x.org",
        "json://h/alice",
        "json://h/all",
    )


@pytest.mark.parametrize("name", ["o.brien", "host-1$", "用户", "a_b", "alice@uni.example"])
def test_names_of_directories_are_taken(name: str) -> None:
    """Dots, dashes, machine accounts, realms and other scripts occur in real directories."""
    assert len(expand_targets(["json://h/{user}"], name)) == 1


@pytest.mark.parametrize(
    "name",
    ["", "a,eve@evil.org", "a b", "a;b", "a&to=eve@evil.org", "a/b", "a\nb", "a%2Cb", "a?b", "a#b"],
)
def test_names_that_could_add_a_recipient_are_refused(name: str) -> None:
    """X9: no user name changes whom a message reaches."""
    with pytest.raises(NotifyError, match="safely"):
        expand_targets(["mailto://h?to={user}@x.org"], name)


def test_an_unknown_placeholder_is_refused() -> None:
    """A typing error in the settings is named, not sent to literally {usr}."""
    with pytest.raises(NotifyError, match=r"\{usr\}.*known: \{user\}"):
        expand_targets(["mailto://h?to={usr}@x.org"], "alice")


def test_a_name_with_a_foreign_address_does_not_reach_it(smtp: Any) -> None:
    """X9: ``eve@evil.org`` as a user name does not redirect a template with its own domain."""
    with pytest.raises(NotifyError, match="safely"):
        expand_targets([smtp.url(to="{user}@example.org")], "eve@evil.org")
    [url] = expand_targets([smtp.url(to="{user}")], "alice@uni.example")
    deliver(url, "s", "b", 5)
    assert smtp.mails[0][0] == ["alice@uni.example"]


@pytest.mark.parametrize("name", ["o.brien", "alice-2", "a_b", "a+b", "用户"])
def test_a_name_reaches_its_own_address_only(smtp: Any, name: str) -> None:
    """The address that the server is told is the user's name at the site's domain, or none."""
    [url] = expand_targets([smtp.url(to="{user}@example.org")], name)
    try:
        deliver(url, "s", "b", 5)
    except NotifyError:
        assert smtp.mails == []
    else:
        assert smtp.mails[0][0] == [f"{name}@example.org"]
