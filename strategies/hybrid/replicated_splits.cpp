#include "strategies/hybrid/replicated_splits.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "strategies/hybrid/split_search.h"

namespace plimsoll {
namespace {

/// By what copies are compared: those that fit come first.
struct Merit {
  bool is_too_large = false;
  Seconds makespan;

  friend auto operator<=>(const Merit&, const Merit&) = default;
};

Merit merit_of(const Problem& of_rank, std::optional<Bytes> limit) {
  const PlainTraining made = plain_training(of_rank);
  return {limit && made.peak > *limit, made.makespan};
}

/// With copies of what the search cuts on the devices that each of them has.
std::variant<Problem, std::string> with_copies(const Problem& problem, const Options& options, std::uint32_t devices,
                                               std::uint32_t copies, const SplitOnDevices& split) {
  if (copies == 1) return split(problem, devices);
  if (devices % copies != 0) return fmt::format("{} replicas do not share out {} devices equally", copies, devices);
  Problem own = problem;
  own.micro_batches = std::max(problem.micro_batches / copies, 1U);
  std::variant<Problem, std::string> made = split(own, devices / copies);
  Problem* of_copy = std::get_if<Problem>(&made);
  if (of_copy == nullptr) return made;
  of_copy->micro_batches = problem.micro_batches;
  return on_axis(*of_copy, {"replicas", copies, true, way_of(options)},
                 {.sharded = Sharded::nothing, .bucket = usual_bucket});
}

}  // namespace

std::variant<Problem, std::string> in_replicas(const Problem& problem, const Options& options,
                                               const SplitOnDevices& split) {
  const std::uint32_t devices = split_ranks(options, devices_left(problem));
  const bool chooses = options.text("replicas") == "auto";
  if (!chooses) {
    const auto copies = static_cast<std::uint32_t>(options.integer("replicas"));
    return with_copies(problem, options, devices, copies, split);
  }
  std::variant<Problem, std::string> best = split(problem, devices);
  const bool are_all = !problem.mesh && devices == problem.platform.devices.size();
  if (!are_all || !std::holds_alternative<Problem>(best)) return best;
  std::optional<Bytes> limit = memory_limit(problem, options);
  if (!limit) limit = problem.platform[problem.platform.devices.front().memory].capacity;
  std::optional<Merit> least;
  for (std::uint32_t copies = 2; devices % copies == 0 && problem.micro_batches % copies == 0; copies *= 2) {
    if (!least) least = merit_of(std::get<Problem>(best), limit);
    std::variant<Problem, std::string> other = with_copies(problem, options, devices, copies, split);
    if (!std::holds_alternative<Problem>(other)) continue;
    const Merit merit = merit_of(std::get<Problem>(other), limit);
    if (!(merit < *least)) continue;
    least = merit;
    best = std::move(other);
  }
  return best;
}

}  // namespace plimsoll
