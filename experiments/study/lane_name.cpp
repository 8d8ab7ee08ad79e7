#include "experiments/study/lane_name.h"

namespace plimsoll {
namespace {

std::string place_name(MemoryId place, const Platform& platform) {
  const std::optional<std::string_view> relative = relative_name(place);
  return relative ? std::string(*relative) : platform[place].name;
}

}  // namespace

std::string lane_name(Way way, const Platform& platform) {
  if (way == way::compute) return "compute";
  const std::string from = place_name(way.from, platform);
  return way.computes() ? from : from + "_to_" + place_name(way.to, platform);
}

}  // namespace plimsoll
