// How far two numbers may be apart is said in one header, with the reason.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

using Literals = std::set<std::string>;

/// Small numbers that are written in a text, outside of its comments and quotes.
Literals small_numbers(const std::string& text) {
  static const std::regex aside(R"re(//[^\n]*|"(\\.|[^"\\\n])*")re"),
      small(R"(\b[0-9][0-9.]*[eE]-[0-9]+|\b0\.0{4,}[0-9]+)");
  const std::string code = std::regex_replace(text, aside, "");
  Literals found;
  for (std::sregex_iterator at(code.begin(), code.end(), small), end; at != end; ++at) found.insert(at->str());
  return found;
}

/// Those that are no tolerances, by file.
const std::map<std::string, Literals> no_tolerances{
    // Units.
    {"experiments/commands/command_replay_log.cpp", {"1e-9"}},
    {"experiments/measure/calibration.cpp", {"1e-6", "1e-9"}},    // and the shortest copy that has a rate
    {"experiments/report/gantt.cpp", {"1e-30", "1e-3", "1e-6"}},  // and the shortest axis
    {"sim/io/quantity.cpp", {"0.999995e-3", "0.999995e-6"}},
    {"strategies/offloading/poet/poet.cpp", {"1e-12"}},
    // What a user may ask for, and what is shown to one.
    {"experiments/study/summary.cpp", {"5e-7"}},
    {"strategies/compression/compress_plan.cpp", {"0.000001", "1e-6"}},
    // How far a search goes, and weights in it that are next to nothing.
    {"sim/bound/iteration_bound.cpp", {"1e-4"}},
    {"sim/bound/least_mix.cpp", {"1e-12"}},
    {"sim/bound/max_flow.h", {"4e-16"}},  // what lowers a bound, so that rounding never raises it
    {"sim/bound/packed_cuts.cpp", {"1e-12", "1e-7"}},
    {"sim/bound/snapshot_cut.cpp", {"1e-10"}},
    {"sim/mesh/nccl_times.cpp", {"1e-6"}},  // a microsecond
    {"strategies/compose/levels/joint_planner.cpp", {"1e-3"}},
    {"strategies/compression/kept_choice.cpp", {"1e-12", "1e-30"}},
    {"strategies/hybrid/split_improvement.cpp", {"1e-9"}},
    {"strategies/pipelining/pipeline_search.cpp", {"1e-12"}},
    {"strategies/pipelining/star_order.cpp", {"1e-6"}},
    {"strategies/pipelining/zero_bubble.cpp", {"1.5e-4"}},
    {"strategies/placement/pardnn/pardnn_mapping.cpp", {"1e-9"}},
    // SimGrid's clock.
    {"sim/engine/simgrid/late/simulations.cpp", {"1e-12"}},
};

TEST_CASE("what counts as a small number", "[structure]") {
  CHECK(small_numbers("a < (1 - 1e-12) * b;  // 1e-9\nc = 2.5E-3; d = \"1e-6\"; e = 0.00001; f = 0.001; g1e-9;") ==
        Literals{"1e-12", "2.5E-3", "0.00001"});
}

TEST_CASE("every tolerance is one of sim/core/tolerance.h", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  std::map<std::string, Literals> found;
  for (const char* folder : {"sim", "strategies", "experiments"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
      std::ifstream in(entry.path());
      Literals numbers = small_numbers({std::istreambuf_iterator<char>(in), {}});
      if (!numbers.empty()) found[fs::relative(entry.path(), root).string()] = std::move(numbers);
    }
  }
  CHECK(found["sim/core/tolerance.h"].size() > 3);
  found.erase("sim/core/tolerance.h");
  CHECK(found == no_tolerances);
}

}  // namespace
}  // namespace plimsoll
