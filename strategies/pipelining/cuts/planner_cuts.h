#pragma once
// Where published planners cut a chain for a pipeline of one part a device, and which parts are on several devices.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sim/model/problem.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/planners/madpipe.h"
#include "strategies/pipelining/planners/pipedream.h"
#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

/// pipedream, ideals, piper, alpa, madpipe.
bool is_planner_cut(std::string_view cut);

/// Their names.
std::span<const std::string_view> cut_planners();

struct CutQuestion {
  std::string_view planner;
  std::uint32_t devices = 1;  ///< all of them are to be used
  bool copies = false;        ///< whether a part may be on several devices
  RangeFits fits = {};        ///< unset: memory is not asked about
};

/// Why a planner is not asked, where it is not.
std::optional<std::string> too_long_for(const Problem&, std::string_view planner);

/// The chain as PipeDream sees it, with parts on several devices and without bytes of memory.
PipedreamProblem pipedream_problem(const Problem&, std::uint32_t devices);

/// The chain as MadPipe sees it, without bytes; every device is to have a stage.
MadpipeProblem madpipe_problem(const Problem&, std::uint32_t devices);

/// Within the memory or, where no such cut is found, as if there were enough; or why there is none.
std::variant<StageCut, std::string> planner_cut(const Problem&, const CutQuestion&);

}  // namespace plimsoll
