"""Settings: one table that checks the loader, etc/slurmwrap.toml and the docs page."""

from __future__ import annotations

from slurmwrap.config.loader import LoadedConfig, load_config
from slurmwrap.config.settings import Config

__all__ = ["Config", "LoadedConfig", "load_config"]
