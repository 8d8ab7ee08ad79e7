"""How hardware is named in traces: the rule of sim/core/device_name.h, so that times measured on a machine hold on the
platform that `plimsoll calibrate` measured there. Needs no torch.

  python3 device_name.py [CPUINFO [MACHINE]]      the processor's name; of /proc/cpuinfo and `uname -m` where not given
"""

import platform
import re
import sys


def device_name(reported):
    """As reported, without white space at the ends, one space between words."""
    return " ".join(word for word in re.split("[ \t\r\n\v\f]+", reported) if word)


def processor_name(cpuinfo, machine):
    """The first "model name" of /proc/cpuinfo's text, or else the machine's architecture."""
    for line in cpuinfo.split("\n"):
        key, _, value = line.partition(":")
        if device_name(key) == "model name" and device_name(value):
            return device_name(value)
    return device_name(machine)


def this_processor(cpuinfo_file="/proc/cpuinfo", machine=None):
    """processor_name of this machine, or of what is given in its place."""
    try:
        with open(cpuinfo_file, encoding="utf-8", newline="\n") as file:
            cpuinfo = file.read()
    except OSError:
        cpuinfo = ""
    return processor_name(cpuinfo, platform.machine() if machine is None else machine)


if __name__ == "__main__":
    print(this_processor(*sys.argv[1:]))
