#include "strategies/compression/sensitivity_runs.h"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>
#include <string>

namespace plimsoll {
namespace {

Seconds forward_and_backward(const OffloadModel& model) {
  return std::accumulate(model.time.begin(), model.time.end(), Seconds{0});
}

Seconds mean_of_runs(const SensitivityRuns& runs, const OffloadModel& model) {
  return static_cast<double>(runs.of_value) / static_cast<double>(runs.every) * forward_and_backward(model);
}

std::string note_of(std::string_view strategy, const SensitivityRuns& runs, const OffloadModel& model,
                    std::size_t packed) {
  const auto more = static_cast<double>(runs.of_value) * static_cast<double>(packed);
  return fmt::format(
      "{} finds the bits of {} values by {:.0f} runs every {} iterations: {:.1f} % more time in the mean, which is "
      "charged where values are packed, and {:.3g} s more in the iteration that does so",
      strategy, packed, more, runs.every, 100 * more / static_cast<double>(runs.every),
      more * forward_and_backward(model).value);
}

}  // namespace

void charge(PackingChoice& choice, std::string_view strategy, const SensitivityRuns& runs) {
  if (runs.every == 0) return;
  choice.overhead = [runs](const OffloadModel& model, const SavedUse&) { return mean_of_runs(runs, model); };
  choice.note = [runs, name = std::string(strategy)](const OffloadModel& model, std::size_t packed) {
    return note_of(name, runs, model, packed);
  };
}

}  // namespace plimsoll
