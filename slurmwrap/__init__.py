"""Job wrapper and card-hour accounting for GPU clusters that run Slurm.

Training code needs one name from here: :func:`log_metrics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmwrap.runtime.metrics import log_metrics as log_metrics

__version__ = "0.1.0"

__all__ = ["__version__", "log_metrics"]


def __getattr__(name: str) -> object:
    # Resolved on first use, so that `import slurmwrap` costs a training script nothing.
    if name == "log_metrics":
        from slurmwrap.runtime.metrics import log_metrics

        return log_metrics
    raise AttributeError(f"module 'slurmwrap' has no attribute {name!r}")
