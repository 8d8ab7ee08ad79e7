#pragma once
// Where the numbers of a trace come from: measured on a device, or computed from formulas.

#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

struct Source {
  enum class Kind { measured, computed };

  Kind kind = Kind::computed;
  std::string
      device;  ///< as the framework reports it; a platform device whose `model` is equal keeps the trace's times
  std::string dtype = "fp32";                              ///< picks the peak rate when times are re-scaled
  std::vector<std::pair<std::string, std::string>> notes;  ///< every other key, as written

  friend bool operator==(const Source&, const Source&) = default;
};

}  // namespace plimsoll
