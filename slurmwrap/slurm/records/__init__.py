"""Turning the text that sacct prints into accounting records, from dumps and live output."""

from __future__ import annotations

from slurmwrap.slurm.records.reader import (
    RecordBatch,
    RecordReader,
    RejectedLine,
    parse_records,
)

__all__ = ["RecordBatch", "RecordReader", "RejectedLine", "parse_records"]
