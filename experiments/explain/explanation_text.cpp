// What plimsoll explain prints.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "experiments/explain/explanation_text.h"
#include "experiments/export/step_name.h"
#include "experiments/study/lane_name.h"
#include "sim/core/codec.h"
#include "sim/core/names.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

constexpr std::size_t shown_parts = 20;

/// A row of the table of times: a part, and what it is on each device.
struct PartRow {
  std::string name;
  std::vector<Seconds> of;  ///< by device
};

std::string name_of(const TimePart& part) {
  return fmt::format("{}{}{}", written(part.kind), part.axis.empty() ? "" : ", ", part.axis);
}

/// Without those that are 0 everywhere.
std::vector<PartRow> rows_of(const Explanation& made) {
  std::vector<PartRow> rows;
  const auto row = [&](const std::string& name) -> PartRow& {
    const auto found = std::ranges::find(rows, name, &PartRow::name);
    if (found != rows.end()) return *found;
    return rows.emplace_back(PartRow{name, std::vector<Seconds>(made.devices.size())});
  };
  for (std::size_t d = 0; d < made.devices.size(); ++d) {
    for (const TimePart& part : made.devices[d].parts) row(name_of(part)).of[d] = part.time;
  }
  for (std::size_t d = 0; d < made.devices.size(); ++d) row("contention").of[d] = made.devices[d].contention;
  std::erase_if(rows, [](const PartRow& each) {
    return std::ranges::all_of(each.of, [](Seconds time) { return time == Seconds{}; });
  });
  return rows;
}

/// Of one device a part has its share, too; of several each device is a row.
std::string time_table(const Explanation& made, const Problem& problem, Seconds makespan) {
  const std::vector<PartRow> rows = rows_of(made);
  const auto name = [&](std::size_t d) { return problem.platform.devices[made.devices[d].device.index].name; };
  std::string text = "where the time goes; on every device it sums to the makespan:\n";
  if (made.devices.size() == 1) {
    for (const PartRow& row : rows) {
      text +=
          fmt::format("  {:<20}{:>12}{:>8.1f} %\n", row.name, format_seconds(row.of[0]), 100 * (row.of[0] / makespan));
    }
    return text;
  }
  const auto width = [](const PartRow& row) { return std::max<std::size_t>(row.name.size(), 10); };
  text += fmt::format("  {:<12}", "");
  for (const PartRow& row : rows) text += fmt::format("  {:>{}}", row.name, width(row));
  text += "\n";
  for (std::size_t d = 0; d < made.devices.size(); ++d) {
    text += fmt::format("  {:<12}", name(d));
    for (const PartRow& row : rows) text += fmt::format("  {:>{}}", format_seconds(row.of[d]), width(row));
    text += "\n";
  }
  return text;
}

std::string lane_of(const Explanation& made, const Platform& platform, const PathPart& part) {
  return part.issues ? "host" : lane_name(made.streams[part.stream.index].way, platform);
}

std::string_view kind_of(const PathPart& part) {
  return part.issues ? "issue" : written(part.kind);
}

std::string where(const Explanation& made, const Platform& platform, const PathPart& part) {
  const DeviceId device = made.streams[part.stream.index].device;
  return platform.devices[device.index].name + " " + lane_of(made, platform, part);
}

/// The longest of them, in their order.
std::string path_lines(const Explanation& made, const Problem& problem) {
  std::vector<std::size_t> shown(made.path.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  std::ranges::stable_sort(shown, std::ranges::greater{}, [&](std::size_t p) { return made.path[p].time; });
  shown.resize(std::min(shown.size(), shown_parts));
  std::ranges::sort(shown);
  std::string text =
      fmt::format("the chain of steps that makes it, {} steps in {} parts:\n", made.path_steps, made.path.size());
  for (const std::size_t p : shown) {
    const PathPart& part = made.path[p];
    const std::string to = part.steps == 1 ? "" : fmt::format(" to '{}', {} steps", part.last, part.steps);
    text += fmt::format("  {:>12}{:>12}  {:<24}  {:<10}  '{}'{}\n", format_seconds(part.start),
                        format_seconds(part.time), where(made, problem.platform, part), kind_of(part), part.first, to);
  }
  if (shown.size() == made.path.size()) return text;
  Seconds rest;
  for (const PathPart& part : made.path) rest += part.time;
  for (const std::size_t p : shown) rest = rest - made.path[p].time;
  return text +
         fmt::format("  {:>12}{:>12}  {} shorter parts\n", "", format_seconds(rest), made.path.size() - shown.size());
}

std::string limit_lines(const Explanation& made, Seconds makespan) {
  std::string text = fmt::format("what limits it: {}; of the chain\n", written(most_limiting(made)));
  for (const auto& [limit, name] : Names<PathLimit>::all) {
    const Seconds time = made.limits[static_cast<std::size_t>(limit)];
    if (time == Seconds{}) continue;
    text += fmt::format("  {:<20}{:>12}{:>8.1f} %\n", name, format_seconds(time), 100 * (time / makespan));
  }
  return text;
}

std::string step_words(const AnsweredQuestion& of, StepId id) {
  const Schedule& schedule = *of.answer.schedule;
  return fmt::format("{} '{}' (step {})", written(schedule[id].kind),
                     step_name(of.problem.graph, schedule, schedule[id]), id.index);
}

std::string peak_lines(const PeakContents& made, const AnsweredQuestion& of) {
  const auto& [question, problem, answer] = of;
  const Schedule& schedule = *answer.schedule;
  const Memory& memory = problem.platform[made.memory];
  std::string text = fmt::format("in {} at its peak of {}, {}:\n", memory.name, format_bytes(made.peak.bytes),
                                 made.peak.at_start ? "from the start" : "in " + step_words(of, made.peak.step));
  for (std::size_t k = 0; k < memory_kinds; ++k) {
    if (made.by_kind[k] == 0) continue;
    const std::string count = made.buffers[k] == 0 ? "" : fmt::format("  in {} buffers", made.buffers[k]);
    text += fmt::format("  {:<20}{:>12}{}\n", memory_kind_names[k], format_bytes(Bytes{made.by_kind[k]}), count);
  }
  for (const ValueAtPeak& held : made.largest) {
    const Buffer& buffer = schedule[held.buffer];
    text += fmt::format("  {:<20}{:>12}  '{}'{}, {}, {}\n", &held == &made.largest.front() ? "largest:" : "",
                        format_bytes(buffer.bytes), problem.graph[buffer.tensor].name,
                        buffer.is_packed() ? " by " + text_of(schedule.codecs[buffer.codec.index]) : "",
                        held.made ? "made in " + step_words(of, *held.made) : "there from the start",
                        held.freed ? "freed by " + step_words(of, *held.freed) : "there at the end");
  }
  return text;
}

std::string shave_words(const Shave& shave, const Metrics& now, bool are_bounds) {
  std::string text;
  if (shave.plan) {
    text = fmt::format("{} more ({}, {})", format_bytes(shave.plan->needs - now.peak), format_bytes(shave.plan->needs),
                       format_seconds(shave.plan->makespan));
  }
  if (!are_bounds) return text.empty() ? "no plan of the strategy" : text;
  std::string bound = "the bound allows it within this memory";
  if (shave.is_impossible) bound = "no schedule that repeats and copies, whatever the memory";
  if (shave.at_least) {
    bound = fmt::format("no schedule that repeats and copies with less than {} more",
                        format_bytes(*shave.at_least - now.peak));
  }
  return text.empty() ? bound : text + "; " + bound;
}

std::string better_lines(const BetterPlans& better, const AnsweredQuestion& of) {
  const Metrics& now = *of.answer.metrics;
  std::string text = "with more memory:\n";
  if (better.next) {
    text += fmt::format("  {:<20}{:>12}  with {}, {} more\n", "next faster plan", format_seconds(better.next->makespan),
                        format_bytes(better.next->needs), format_bytes(better.next->needs - now.peak));
  } else {
    const std::string why = better.no_plans.empty() ? "the strategy has no faster one" : better.no_plans;
    text += fmt::format("  {:<20}{}\n", "next faster plan", why);
  }
  for (const Shave& shave : better.shaves) {
    text += fmt::format("  {:<20}{}\n", fmt::format("{:.0f} % less time", 100 * shave.share),
                        shave_words(shave, now, better.no_bounds.empty()));
  }
  if (!better.no_bounds.empty()) text += fmt::format("  no bounds: {}\n", better.no_bounds);
  return text;
}

Json to_json(const DeviceTime& of, const Platform& platform) {
  Json parts = Json::array();
  for (const TimePart& part : of.parts) {
    const Json axis = part.axis.empty() ? Json(nullptr) : Json(part.axis);
    parts.push_back({{"part", written(part.kind)}, {"axis", axis}, {"time_s", part.time.value}});
  }
  parts.push_back({{"part", "contention"}, {"axis", nullptr}, {"time_s", of.contention.value}});
  return {{"device", platform.devices[of.device.index].name}, {"parts", std::move(parts)}};
}

Json to_json(const PathPart& part, const Explanation& made, const Platform& platform) {
  const Stream& stream = made.streams[part.stream.index];
  return {{"device", platform.devices[stream.device.index].name},
          {"lane", lane_of(made, platform, part)},
          {"limit", written(part.limit)},
          {"kind", kind_of(part)},
          {"start_s", part.start.value},
          {"time_s", part.time.value},
          {"steps", part.steps},
          {"first", part.first},
          {"last", part.last}};
}

Json step_or_null(const std::optional<StepId>& step) {
  return step ? Json(step->index) : Json(nullptr);
}

Json to_json(const PeakContents& made, const AnsweredQuestion& of) {
  const auto& [question, problem, answer] = of;
  Json kinds = Json::object(), largest = Json::array();
  for (std::size_t k = 0; k < memory_kinds; ++k) kinds[std::string(memory_kind_names[k])] = made.by_kind[k];
  for (const ValueAtPeak& held : made.largest) {
    const Buffer& buffer = (*answer.schedule)[held.buffer];
    largest.push_back({{"name", problem.graph[buffer.tensor].name},
                       {"kind", memory_kind_names[memory_kind(problem.graph, buffer)]},
                       {"bytes", buffer.bytes.count},
                       {"micro_batch", buffer.micro_batch},
                       {"made_in_step", step_or_null(held.made)},
                       {"freed_by_step", step_or_null(held.freed)}});
  }
  const std::optional<Bytes> capacity = problem.platform[made.memory].capacity;
  return {{"name", problem.platform[made.memory].name},
          {"peak_bytes", made.peak.bytes.count},
          {"capacity_bytes", capacity ? Json(capacity->count) : Json(nullptr)},
          {"step", made.peak.at_start ? Json(nullptr) : Json(made.peak.step.index)},
          {"bytes_by_kind", std::move(kinds)},
          {"largest", std::move(largest)}};
}

Json to_json(const std::optional<FasterPlan>& plan) {
  if (!plan) return nullptr;
  return {{"peak_bytes", plan->needs.count}, {"makespan_s", plan->makespan.value}};
}

Json to_json(const std::optional<BetterPlans>& better) {
  if (!better) return nullptr;
  Json shaves = Json::array();
  for (const Shave& shave : better->shaves) {
    shaves.push_back({{"share", shave.share},
                      {"plan", to_json(shave.plan)},
                      {"at_least_bytes", shave.at_least ? Json(shave.at_least->count) : Json(nullptr)},
                      {"impossible", shave.is_impossible}});
  }
  const auto why = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"next", to_json(better->next)},
          {"shaves", std::move(shaves)},
          {"no_plans", why(better->no_plans)},
          {"no_bounds", why(better->no_bounds)}};
}

}  // namespace

std::string text_of(const Explanation& made, const AnsweredQuestion& of) {
  const auto& [question, problem, answer] = of;
  const Metrics& metrics = *answer.metrics;
  std::string text = fmt::format("{} with {} on {}{}: {}, peak {}\n", problem.graph.name, question.strategy.text,
                                 problem.platform.name, problem.times_rescaled ? " (times re-scaled)" : "",
                                 format_seconds(metrics.makespan), format_bytes(metrics.peak));
  text += time_table(made, problem, metrics.makespan) + path_lines(made, problem) + limit_lines(made, metrics.makespan);
  for (const PeakContents& memory : made.memories) text += peak_lines(memory, of);
  return made.better ? text + better_lines(*made.better, of) : text;
}

Json to_json(const Explanation& made, const AnsweredQuestion& of) {
  const auto& [question, problem, answer] = of;
  Json json{{"trace", question.trace},
            {"platform", question.platform},
            {"strategy", question.strategy.text},
            {"engine", written(question.engine)},
            {"feasible", answer.feasible()},
            {"makespan_s", answer.metrics->makespan.value},
            {"peak_bytes", answer.metrics->peak.count}};
  for (const char* list : {"devices", "critical_path", "memories"}) json[list] = Json::array();
  for (const DeviceTime& device : made.devices) json["devices"].push_back(to_json(device, problem.platform));
  for (const PathPart& part : made.path) json["critical_path"].push_back(to_json(part, made, problem.platform));
  json["critical_steps"] = made.path_steps;
  for (const auto& [limit, name] : Names<PathLimit>::all) {
    json["limits"][std::string(name) + "_s"] = made.limits[static_cast<std::size_t>(limit)].value;
  }
  json["limited_by"] = written(most_limiting(made));
  for (const PeakContents& memory : made.memories) json["memories"].push_back(to_json(memory, of));
  json["better"] = to_json(made.better);
  return json;
}

}  // namespace plimsoll
