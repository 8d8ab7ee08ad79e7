"""`python3 -m plimsoll.trace ...` where the package is installed: traces/export_pytorch.py elsewhere."""

import sys

from .exporter import main

sys.exit(main(sys.argv[1:]))
