// The transform `seer`: the first stages are frozen and what they make is stored, once for each sample; from then on
// they are not run, and the first trained stage reads its input from the store.
// Time of an iteration: that of the stages which are trained; of the store: one output a sample.
// Source: Chen, Lee, Srinivas, Abbeel, "Improving computational efficiency in visual reinforcement learning via stored
// embeddings", NeurIPS 2021.

#include <fmt/format.h>

#include <string>
#include <variant>

#include "sim/io/quantity.h"
#include "strategies/api/strategy.h"
#include "strategies/transforms/smaller_problem.h"

namespace plimsoll {
namespace {

struct SeerOptions {
  std::optional<std::size_t> layers;
  double fraction = 0.5;
  bool writes = false;
  bool on_disk = false;
  std::int64_t iterations = 1;
};

/// Of the parameters, which are read by stages that are trained; or why one cannot be told.
std::variant<std::vector<bool>, std::string> trained_behind(const Graph& graph, std::uint32_t first) {
  std::vector<bool> before(graph.tensors.size(), false), behind = before;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) (op.stage < first ? before : behind)[t.index] = true;
    }
  }
  bool any = false;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (before[t] && behind[t]) {
      return "'" + graph.tensors[t].name + "' is read by stages that would be frozen and by others";
    }
    any = any || behind[t];
  }
  if (!any) return "no stage behind the frozen ones has parameters that could be trained";
  return behind;
}

/// Where outputs are stored, and the time that one device takes to read or write some there.
struct Store {
  const Memory& memory;
  std::optional<Route> route;

  Seconds moves(Bytes bytes) const { return route->latency + bytes / route->bandwidth; }
};

std::string_view store_name(bool on_disk) {
  return on_disk ? "disk" : "host";
}

std::variant<Store, std::string> store_of(const Platform& platform, bool on_disk) {
  const DeviceId device{0};
  const std::optional<MemoryId> host = memory_at(platform, device, place::host);
  const std::optional<MemoryId> home = on_disk ? memory_at(platform, device, place::disk) : host;
  if (!home) return fmt::format("platform '{}' has no {} to store outputs in", platform.name, store_name(on_disk));
  return Store{platform[*home], route_between(platform, *home, platform[device].memory)};
}

/// With a note on what the store takes and what it costs to use it, neither of which is part of the iteration.
std::variant<Problem, std::string> priced(Problem problem, const SeerOptions& options, Bytes stored, bool writes) {
  const std::variant<Store, std::string> found = store_of(problem.platform, options.on_disk);
  if (const std::string* why = std::get_if<std::string>(&found)) return *why;
  const auto& store = std::get<Store>(found);
  const Bytes iteration = problem.micro_batches * stored, all = options.iterations * iteration;
  if (store.memory.capacity && all > *store.memory.capacity) {
    return fmt::format("{} of outputs do not fit into the {}", format_bytes(all), store_name(options.on_disk));
  }
  problem.notes.push_back(fmt::format(
      "seer stores {} a micro-batch, {} in all at {}; {} {} an iteration is not in its time: {}", format_bytes(stored),
      format_bytes(all), store.memory.name, writes ? "writing" : "reading", format_bytes(iteration),
      store.route ? format_seconds(store.moves(iteration)) + " on its links" : "no link leads there"));
  return problem;
}

std::variant<Problem, std::string> seer(const Problem& problem, const SeerOptions& options) {
  const std::vector<std::uint32_t> stages = forward_stages(problem.graph);
  const std::size_t others = stages.empty() ? 0 : stages.size() - 1;  // the last is the loss
  const bool by_share = !options.layers;
  const auto frozen =
      by_share ? static_cast<std::size_t>(options.fraction * static_cast<double>(others)) : *options.layers;
  if (frozen == 0 || frozen > others) {
    return fmt::format("{} of the {} stages before the loss would be frozen: expected from 1 to {}", frozen, others,
                       others);
  }
  const std::uint32_t first = stages[frozen];
  std::variant<std::vector<bool>, std::string> trained = trained_behind(problem.graph, first);
  if (std::string* why = std::get_if<std::string>(&trained)) return std::move(*why);
  std::variant<Problem, std::string> made = with_frozen(problem, std::get<std::vector<bool>>(trained));
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  std::variant<WithoutPrefix, std::string> cut = without_prefix(std::get<Problem>(made), first);
  if (std::string* why = std::get_if<std::string>(&cut)) return std::move(*why);
  auto& after = std::get<WithoutPrefix>(cut);
  const bool writes = options.writes;
  return priced(writes ? std::get<Problem>(std::move(made)) : std::move(after.problem), options, after.stored, writes);
}

constexpr auto seer_options =
    options_of<SeerOptions>(option_of<&SeerOptions::layers>({
                                .name = "layers",
                                .least = 1,
                                .most = 1'000'000,
                                .values = "auto or a whole number from 1",
                                .help = "number of leading stages that are frozen; auto: by `fraction`",
                            }),
                            option_of<&SeerOptions::fraction>({
                                .name = "fraction",
                                .least = 0,
                                .most = 1,
                                .help = "share of the stages before the loss that is frozen, rounded down",
                            }),
                            option_of<&SeerOptions::writes>({
                                .name = "phase",
                                .words = "after before",
                                .help = "an iteration that reads stored outputs, or one that computes and stores them",
                            }),
                            option_of<&SeerOptions::on_disk>({
                                .name = "store",
                                .words = "host disk",
                                .help = "where the outputs are stored",
                            }),
                            option_of<&SeerOptions::iterations>({
                                .name = "iterations",
                                .least = 1,
                                .most = 1'000'000'000,
                                .values = "a whole number from 1",
                                .help = "iterations of an epoch, the outputs of which are stored",
                            }));

}  // namespace

extern constinit const StrategyInfo seer_strategy{
    .name = "seer",
    .family = Family::transform,
    .summary = "freezes the first stages and reads their stored outputs for each sample",
    .source =
        "Chen et al., 'Improving computational efficiency in visual reinforcement learning via stored embeddings', "
        "NeurIPS 2021",
    .options = seer_options,
    .kind = TransformStrategy{.transform = by_options<seer>},
};

}  // namespace plimsoll
