"""Generates the pages and pictures of the site from the code of this tree, not of an installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
