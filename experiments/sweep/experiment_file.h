#pragma once
// Experiment files: YAML -> Experiment, the questions of a sweep as lists. The format is described in
// experiments/README.md.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "experiments/study/run.h"
#include "experiments/study/share.h"
#include "experiments/sweep/selection.h"
#include "sim/core/units.h"
#include "sim/io/json/json.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {

/// An end of a range of budgets that depends on the trace and the platform.
enum class BudgetMark : std::uint8_t {
  smallest,  ///< the least budget with which some strategy of the experiment is feasible
  store_all  ///< the peak of store_all, which needs no more
};
using BudgetEnd = std::variant<BudgetMark, Bytes, Share>;

enum class BudgetScale : std::uint8_t { linear, log };

/// `count` budgets, the ends included, at equal distances or ratios.
struct BudgetRange {
  BudgetEnd from = BudgetMark::smallest, to = BudgetMark::store_all;
  std::uint32_t count = 0;
  BudgetScale scale = BudgetScale::linear;

  friend bool operator==(const BudgetRange&, const BudgetRange&) = default;
};

/// Budgets as they stand; unset: the device's capacity.
using BudgetList = std::vector<std::optional<std::variant<Bytes, Share>>>;

/// Everything is combined with everything that `selection` does not leave out.
struct Experiment {
  std::string name;
  std::vector<std::string> traces, platforms;
  std::vector<Pipeline> strategies;
  std::vector<std::uint32_t> micro_batches{1};
  std::vector<Optimizer> optimizers{Optimizer::none};
  PointSelection selection;
  std::map<std::string, std::string> aliases;  ///< of traces and platforms, by what they stand for
  std::variant<BudgetList, BudgetRange> memory = BudgetList{std::nullopt};
  std::vector<ParameterGroup> parameter_groups;  ///< which other optimizers update
  States states = States::by_dtype;
  UpdateKernels update_kernels = UpdateKernels::fused;
  bool ema = false;                           ///< updates keep averages of parameters
  bool clip_norm = false;                     ///< gradients are clipped by the norm of all
  std::optional<Evaluation> evaluation = {};  ///< between iterations
  Gradients gradients = Gradients::fresh;
  Engine engine = Engine::simgrid;
  AllocatorChoice allocator{};
  Within within = Within::live;
  bool timelines = false;             ///< records keep timelines, and the report has pictures of them
  std::optional<Seconds> timeout;     ///< of a group, in wall time
  std::optional<Bytes> memory_limit;  ///< of the process that answers a group

  friend bool operator==(const Experiment&, const Experiment&) = default;
};

/// More points than this are refused: their results would fill a disk, and no machine answers them.
inline constexpr std::size_t most_points = 10'000'000;

/// Budgets of one trace on one platform with one strategy.
std::size_t budgets(const Experiment&);

/// The values of the lists that are combined, as they are written.
CombinedValues values_of(const Experiment&);

/// What a command asks for on top of a file.
struct ExperimentChanges {
  std::vector<std::string> settings;  ///< `key=value` each, the value as YAML
  std::string preset;                 ///< a name under `presets`; empty: none
};

struct ExperimentFile {
  Experiment experiment;
  std::string path, text;                                             ///< as it was read, once
  std::map<std::string, std::vector<YamlPlace>, std::less<>> places;  ///< of the elements of lists
};

/// `file` is where the text is said to be from, and where its base is looked for. Throws InputError with everything
/// that is wrong.
ExperimentFile parsed_experiment(const std::string& text, const std::string& file, const ExperimentChanges& = {});
Experiment parse_experiment(const std::string& text, const std::string& file);

/// `e.yaml:4:13: platforms[0]: what`: a complaint about an element of a list of the file.
std::string complaint_about(const ExperimentFile&, std::string_view list, std::size_t element, const std::string& what);

/// Traces and platforms that are paths are looked for beside the file first.
ExperimentFile read_experiment(const std::filesystem::path&, const ExperimentChanges& = {});

/// As written in the file: `50 %`, whole bytes, or a word.
Json to_json(const BudgetEnd&);

/// With every default written out; equal exactly where the experiments are.
Json to_json(const Experiment&);

/// Whether two experiments, written so, may take as much time and memory.
bool same_limits(const Json&, const Json&);

}  // namespace plimsoll
