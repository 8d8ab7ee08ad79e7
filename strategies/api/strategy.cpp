#include "strategies/api/strategy.h"

namespace plimsoll {

std::string_view name_of(Family family) {
  switch (family) {
    case Family::transform:
      return "transform";
    case Family::hybrid:
      return "hybrid";
    case Family::placement:
      return "placement";
    case Family::pipelining:
      return "pipelining";
    case Family::baseline:
      return "baseline";
    case Family::rematerialization:
      return "rematerialization";
    case Family::compression:
      return "compression";
    case Family::offloading:
      return "offloading";
  }
  return "unknown";
}

}  // namespace plimsoll
