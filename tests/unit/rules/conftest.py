"""What the tests of the rules share."""

from __future__ import annotations

import sys
from pathlib import Path

# Import mode importlib puts no folder on the path; rule_scene.py lies beside its tests.
sys.path.insert(0, str(Path(__file__).parent))
