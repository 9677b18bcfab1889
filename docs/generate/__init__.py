"""What makes the pages and pictures of the site that come from the code: of this tree, whatever is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
