#pragma once
// How hardware is named in traces (source.device) and platforms (model): the one rule, so that times measured on a
// machine hold on the platform measured there. traces/python/plimsoll/trace/device_name.py is the same rule in Python.

#include <string>
#include <string_view>

namespace plimsoll {

/// A GPU's name as CUDA reports it, or a processor's: without white space at the ends, one space between words.
std::string device_name(std::string_view reported);

/// Of the text of /proc/cpuinfo: the first "model name"; where it has none, the machine's architecture (`uname -m`).
std::string processor_name(std::string_view cpuinfo, std::string_view machine);

/// Whether two different names look as if they named the same hardware: they differ in case, punctuation, trademarks, a
/// clock rate ("@ 2.00GHz"), a vendor's word ("NVIDIA") or in what follows a comma.
bool seems_same_device(std::string_view, std::string_view);

}  // namespace plimsoll
