#pragma once
// `plimsoll stages`: asks a planner of strategies/pipelining/planners where a table of layers is cut into stages, and
// which devices run each.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/io/json/json.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// The machine, and what only some planners take.
struct StageOptions {
  std::uint32_t devices = 1;
  std::optional<BytesPerSecond> bandwidth;  ///< between them; unset: nobody said
  std::optional<Bytes> memory;
  std::uint32_t hosts = 0, micro_batches = 1;
  std::optional<std::string> only;            ///< of the layers' options, those of this name
  std::optional<std::uint32_t> most_devices;  ///< that share a layer's tensors
  std::optional<std::string> counted;         ///< layers of which stages have equal numbers; unset: all
  bool straight = false;
  std::uint32_t chunks = 1;  ///< parts of a device
  double seconds = 60;       ///< of a solver
};

struct PlannedStage {
  std::vector<std::uint32_t> layers;
  bool host = false;                    ///< on a host instead of a device
  std::optional<std::uint32_t> device;  ///< where devices have several stages each
  std::uint32_t replicas = 1;
  std::uint32_t devices = 1;               ///< that share the tensors of a replica
  std::vector<std::string> ways = {};      ///< in which layers are run, where the planner chooses
  std::optional<std::uint32_t> in_flight;  ///< micro-batches that a replica keeps, where the planner counts them
  std::optional<Seconds> time;             ///< where the planner says it of each stage
  Bytes memory;                            ///< of a device
};

struct StagePlan {
  Seconds time;  ///< what the planner minimises: of a mini-batch in the steady state, unless `facts` say otherwise
  std::vector<std::pair<std::string, Json>> facts;  ///< further keys of the JSON, in their order
  std::string note;                                 ///< a line about them
  std::vector<PlannedStage> stages;
};

/// What a table may say of its layers that only some planners heed.
enum class LayerTrait : char { rows_of_equals, ends, shared_devices, transfer_times };

struct StagePlanner {
  std::string_view name;
  std::vector<std::string_view> takes;  ///< options of the command line that not all planners take
  std::vector<LayerTrait> heeds;
  /// Throws InputError where the table does not have what the planner needs; a text says why there is no plan.
  std::variant<StagePlan, std::string> (*plan)(const LayerTable&, const StageOptions&);
};

std::span<const StagePlanner> stage_planners();

/// Throws InputError where nobody said it.
BytesPerSecond bandwidth_of(const StageOptions&, const LayerTable&);

/// Throws InputError where there are more devices than a planner's tables are made for.
std::uint32_t devices_of(const StageOptions&, std::string_view planner, std::uint32_t most);

std::variant<StagePlan, std::string> ideals_stages(const LayerTable&, const StageOptions&);
std::variant<StagePlan, std::string> piper_stages(const LayerTable&, const StageOptions&);
std::variant<StagePlan, std::string> equal_stages(const LayerTable&, const StageOptions&);
std::variant<StagePlan, std::string> alpa_stages(const LayerTable&, const StageOptions&);
std::variant<StagePlan, std::string> sapp_stages(const LayerTable&, const StageOptions&);

}  // namespace plimsoll
