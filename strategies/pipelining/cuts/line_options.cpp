#include "strategies/pipelining/cuts/line_options.h"

#include "strategies/pipelining/cuts/asked_cut.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/sapp_cut.h"

namespace plimsoll {

bool is_cut(std::string_view text) {
  return text == "uniform" || text == "balanced" || text == sapp_cut || is_planner_cut(text) || read_cut(text);
}

bool is_cut_or_joint(std::string_view text) {
  return text == joint_cut || is_cut(text);
}

bool is_in_flight(std::string_view text) {
  return read_numbers(text).has_value();
}

}  // namespace plimsoll
