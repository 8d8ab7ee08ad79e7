"""Sizes as people write them: '12 GB' is 12 * 10^9 bytes, '12 GiB' 12 * 2^30."""

import re

from .errors import Refused

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(size):
    """The size in bytes: a positive int as it is, a text with one of UNITS. Raises Refused for anything else."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\w+)", size.strip()) if isinstance(size, str) else None
    if match is None or match[2] not in UNITS:
        raise Refused(f"limit: expected a number of bytes or a size such as '12 GB', found {size!r}")
    return int(float(match[1]) * UNITS[match[2]])
