#pragma once
// Peaks as platforms and efficiencies write them.

#include <map>
#include <string>
#include <string_view>

#include "sim/core/units.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {

/// By dtype.
inline std::map<std::string, FlopsPerSecond> read_peak(const YamlCursor& cursor) {
  std::map<std::string, FlopsPerSecond> peak;
  cursor.object([&](std::string_view dtype, const YamlCursor& rate) { peak.emplace(dtype, rate.flops_rate()); });
  return peak;
}

}  // namespace plimsoll
