#include "strategies/compose/chosen_width.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/input_error.h"
#include "strategies/compose/levels/plan_on_devices.h"
#include "strategies/compose/transformed.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/hybrid/split_search.h"

namespace plimsoll {
namespace {

const Pass* pipeline_of(std::span<const Pass> passes) {
  const auto found = std::ranges::find_if(passes, [](const Pass& pass) { return pass.strategy->partitions(); });
  return found == passes.end() ? nullptr : &*found;
}

/// Powers of two, and all devices.
std::vector<std::uint32_t> widths(std::uint32_t devices) {
  std::vector<std::uint32_t> made;
  for (std::uint32_t t = 1; t <= devices; t *= 2) made.push_back(t);
  if (!std::has_single_bit(devices)) made.push_back(devices);
  return made;
}

/// What the passes behind the splits, pipelines of slices among them, plan for. Throws InputError where one cannot.
Problem behind_splits(Problem of_rank, std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    if (!pass.strategy->transforms()) continue;
    std::variant<Problem, std::string> made = pass.strategy->transform(of_rank, pass.options);
    if (const std::string* why = std::get_if<std::string>(&made)) {
      throw InputError(fmt::format("{}: {}", pass.strategy->name, *why));
    }
    of_rank = std::get<Problem>(std::move(made));
  }
  return of_rank;
}

}  // namespace

bool leaves_width_open(std::span<const Pass> passes) {
  const Pass& first = passes.front();
  const SplitOptions* splits = first.options.get_if<SplitOptions>();
  const bool is_open = splits != nullptr && splits->devices == "auto";
  const auto is_hybrid = [](const Pass& pass) { return pass.strategy->family == Family::hybrid; };
  return is_open && pipeline_of(passes) != nullptr && std::ranges::none_of(passes.subspan(1), is_hybrid);
}

std::variant<Decisions, std::string> at_chosen_width(const Problem& problem, std::span<const Pass> passes,
                                                     std::span<const Pass> memory, const Deadline& deadline) {
  const Pass& splits = passes.front();
  std::optional<std::pair<PipelineMerit, Decisions>> best;
  std::string why_not;
  std::optional<InputError> why_no_pipeline;
  const std::vector<std::uint32_t> all = widths(devices_left(problem));
  for (std::size_t w = 0; w < all.size() && (!best || !deadline.passed()); ++w) {
    const Deadline own(deadline.left() / static_cast<double>(all.size() - w));
    Options options = splits.options;
    options.change<SplitOptions>().devices = std::to_string(all[w]);
    std::variant<Decisions, std::string> made = splits.strategy->decide(problem, options, own);
    if (std::string* why = std::get_if<std::string>(&made)) {
      why_not = std::move(*why);
      continue;
    }
    Decisions& decisions = std::get<Decisions>(made);
    std::variant<Problem, CannotBuild> of_rank = built(problem, decisions);
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&of_rank)) {
      why_not = std::move(cannot->why);
      continue;
    }
    try {
      Problem folded = for_planners(behind_splits(std::get<Problem>(std::move(of_rank)), passes.subspan(1)), true,
                                    backward_for(passes), splits.strategy->name, inner_for(passes));
      folded.transformed = true;
      const PipelineMerit merit = pipeline_merit(folded, *pipeline_of(passes), memory);
      if (best && !(merit < best->first)) continue;
      decisions.notes.push_back(fmt::format("{}(devices={}) was the best of all tried", splits.strategy->name, all[w]));
      best.emplace(merit, std::move(decisions));
    } catch (const InputError& error) {  // this pipeline cannot be: others can
      if (!why_no_pipeline) why_no_pipeline = error;
    }
  }
  if (!best && why_no_pipeline) throw InputError(*why_no_pipeline);
  if (!best) return why_not;
  return std::move(best->second);
}

}  // namespace plimsoll
