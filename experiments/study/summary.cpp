#include "experiments/study/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "experiments/study/host_bounds.h"
#include "experiments/study/kept_whole.h"
#include "experiments/study/memory_by_kind.h"
#include "experiments/study/percent.h"
#include "experiments/study/reserved_memory.h"
#include "sim/core/codec.h"
#include "sim/core/names.h"
#include "sim/core/scaling.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/quantity.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {
namespace {

/// Of a proven gap.
std::string class_of(double gap) {
  constexpr double least_shown = 5e-7;
  if (gap == 0) return "optimal";
  return gap < least_shown ? "within 0.0001 %" : fmt::format("within {:.4f} %", 100 * gap);
}

std::string at_peak_lines(const Problem& problem, const Answer& answer) {
  const std::vector<DeviceMetrics>& devices = answer.metrics->devices;
  const auto fullest = std::ranges::max_element(devices, {}, &DeviceMetrics::peak_live);
  const Device& device = problem.platform.devices[static_cast<std::size_t>(fullest - devices.begin())];
  const AtPeak peak = at_peak(*answer.schedule, *answer.timeline, problem.platform, device.memory);
  const MemoryPeak& moment = answer.timeline->peaks[device.memory.index];
  std::string where = "from the start";
  if (!moment.at_start) {
    const Step& step = (*answer.schedule)[moment.step];
    where = fmt::format("in step {}, '{}'", moment.step.index,
                        step.op == no_op ? std::string(written(step.kind)) : problem.graph[step.op].name);
  }
  std::string lines = fmt::format("in memory at the peak ({}, {}):\n", device.name, where);
  BytesByKind by_kind{};
  std::array<std::size_t, memory_kinds> counts{};
  for (const BufferId b : peak.buffers) {
    const Buffer& buffer = (*answer.schedule)[b];
    const std::size_t kind = memory_kind(problem.graph, buffer);
    by_kind[kind] += buffer.bytes.count;
    ++counts[kind];
  }
  for (std::size_t k = 0; k < memory_kinds; ++k) {
    if (by_kind[k] == 0) continue;
    lines += fmt::format("  {:<20}{:>12}  in {} buffers\n", memory_kind_names[k], format_bytes(Bytes{by_kind[k]}),
                         counts[k]);
  }
  if (peak.workspace != Bytes{0}) lines += fmt::format("  {:<20}{:>12}\n", "workspace", format_bytes(peak.workspace));
  for (std::size_t b = 0; b < std::min<std::size_t>(3, peak.buffers.size()); ++b) {
    const Buffer& buffer = (*answer.schedule)[peak.buffers[b]];
    const std::string form =
        buffer.is_packed() ? ", by " + text_of(answer.schedule->codecs[buffer.codec.index]) : std::string();
    lines += fmt::format("  {} {:<10}{:>12}  '{}'{}\n", b == 0 ? "largest:" : "        ", "",
                         format_bytes(buffer.bytes), problem.graph[buffer.tensor].name, form);
  }
  return lines;
}

/// Of the hosts the fullest, and of the disks.
std::vector<MemoryMetrics> fullest_of_each_kind(const Metrics& metrics) {
  std::vector<MemoryMetrics> fullest;
  for (const MemoryMetrics& memory : metrics.memories) {
    const auto same = std::ranges::find(fullest, memory.is_host, &MemoryMetrics::is_host);
    if (same == fullest.end()) {
      fullest.push_back(memory);
    } else if (memory.peak > same->peak) {
      *same = memory;
    }
  }
  return fullest;
}

/// Of the device that reserves most, and of all that run out of memory.
std::string evaluation_line(const Evaluation& evaluation, const Answer& answer) {
  Seconds share;
  Bytes forward;
  for (const Step& step : answer.schedule->steps) {
    if (step.kind != StepKind::evaluation) continue;
    share = std::max(share, step.work.seconds);
    forward = std::max(forward, step.workspace);
  }
  return fmt::format("  evaluation       {:>12}   of each iteration ({}); {} on top of what stays\n",
                     format_seconds(share), written(evaluation), format_bytes(forward));
}

std::string allocator_lines(const Question& question, const Problem& problem, const Answer& answer) {
  const ReservedPeak& peak = *std::ranges::max_element(answer.reserved, {}, &ReservedPeak::reserved);
  std::string lines = fmt::format("  reserved         {:>12}   by the {} allocator\n", format_bytes(peak.reserved),
                                  question.allocator.text);
  lines += fmt::format("    of it          {:>12}   active at most, {} allocated, {} requested\n",
                       format_bytes(peak.active), format_bytes(peak.allocated), format_bytes(peak.requested));
  lines += fmt::format("  fragmentation    {:>10.1f} %   largest free block at the peak {}, retries {}\n",
                       100 * peak.fragmentation(), format_bytes(peak.fullest.largest_free), peak.retries);
  for (const std::string& failed : out_of_memory(question.allocator.kind, problem.platform, answer.reserved)) {
    lines += "  out of memory " + failed + "\n";
  }
  return lines;
}

/// Those that have a plan, the fastest first, then the others with their reasons.
std::string candidate_lines(const Answer& answer) {
  std::vector<Candidate> sorted = answer.candidates;
  std::ranges::stable_sort(sorted, {}, [](const Candidate& c) { return std::pair(!c.taken, !c.makespan); });
  const auto begin = std::ranges::find(sorted, false, &Candidate::taken);
  const auto end = std::find_if(begin, sorted.end(), [](const Candidate& c) { return !c.makespan; });
  std::ranges::stable_sort(begin, end, {}, [](const Candidate& c) { return *c.makespan; });
  std::string lines = sorted.empty() ? "" : "strategies asked:\n";
  for (const Candidate& each : sorted) {
    const std::string gave = each.makespan ? format_seconds(*each.makespan) : each.reason;
    lines += fmt::format("  {:<34}  {:>12}{}\n", each.strategy, gave, each.taken ? "  taken" : "");
  }
  return lines;
}

/// Those of the iteration's time that are above 0, with their share of it.
std::string time_part_lines(const Answer& answer) {
  std::string lines = "the iteration's time:\n";
  for (const TimePart& part : answer.time_parts) {
    if (!(part.time > Seconds{0})) continue;
    const std::string name = fmt::format("{}{}{}", written(part.kind), part.axis.empty() ? "" : ", ", part.axis);
    lines += fmt::format("  {:<20}{:>12}{:>8.1f} %\n", name, format_seconds(part.time),
                         100 * (part.time / answer.metrics->makespan));
  }
  return lines;
}

/// What would be chosen if one thing were otherwise, with how much longer that takes.
std::string price_lines(const Answer& answer) {
  std::string lines = answer.prices.empty() ? "" : "if one thing were otherwise:\n";
  for (const ChangedChoice& each : answer.prices) {
    if (each.strategy.empty()) {
      lines += fmt::format("  {:<24}  nothing fits\n", each.change);
      continue;
    }
    const double more = in_percent(each.makespan / answer.metrics->makespan - 1, 1);
    lines +=
        fmt::format("  {:<24}{:>12}{:>+9.1f} %  {}, {} a micro-batch{}\n", each.change, format_seconds(each.makespan),
                    more, each.strategy, each.samples, each.is_proven ? "" : ", not proven");
  }
  return lines;
}

/// By which figures times were found, where the first device has efficiencies.
std::string timing_line(const Problem& problem) {
  const Device& device = problem.platform.devices.front();
  if (!device.efficiency || !problem.times_rescaled) return "";
  std::map<TimedBy, std::size_t> ops;
  for (const Op& op : problem.graph.ops) {
    if (const std::optional<TimedBy> by = timed_by(problem.graph, op, device)) ++ops[*by];
  }
  if (ops.empty()) return "";  // stages that a strategy has made of the ops, which have their times
  return fmt::format(
      "  times            {:>12}   of {} measured sizes, {} beyond these, {} by shares, {} by rooflines ({})\n",
      fmt::format("{} ops", problem.graph.ops.size()), ops[TimedBy::table], ops[TimedBy::border], ops[TimedBy::share],
      ops[TimedBy::roofline], device.efficiency->model);
}

}  // namespace

std::string percent_above(double value, double bound) {
  return bound > 0 ? fmt::format("{:+.1f} %", in_percent(value / bound - 1, 1)) : "no bound";
}

std::string summary(const Question& question, const Problem& problem, const Answer& answer) {
  const Metrics& m = *answer.metrics;
  std::string text = fmt::format("{} with {} on {}{}\n", problem.graph.name, question.strategy.text,
                                 problem.platform.name, problem.times_rescaled ? " (times re-scaled)" : "");
  const double bound = answer.bounds->time().value;
  text += fmt::format("  iteration time   {:>12}   lower bound {} ({})\n", format_seconds(m.makespan),
                      format_seconds(answer.bounds->time()), percent_above(m.makespan.value, bound));
  text += timing_line(problem);
  if (answer.issue) {
    text +=
        fmt::format("  issued by hosts  {:>12}   by the busiest, ahead of its device\n", format_seconds(*answer.issue));
  }
  text += fmt::format("  recomputing      {:>12}   {} of {} steps\n", format_seconds(m.recompute), m.recomputes,
                      answer.schedule->steps.size());
  if (answer.cutting && *answer.cutting > Seconds{0}) {
    text += fmt::format("  cutting          {:>12}   of stages that run alone, beyond the same in plain training\n",
                        format_seconds(*answer.cutting));
  }
  text += fmt::format("  peak memory      {:>12}   lower bound {}, budget {}\n", format_bytes(m.peak),
                      format_bytes(answer.bounds->memory), answer.budget ? format_bytes(*answer.budget) : "unlimited");
  const auto guaranteed = std::ranges::max_element(answer.guaranteed);
  if (guaranteed != answer.guaranteed.end() && *guaranteed > m.peak) {
    text += fmt::format("  by any timing    {:>12}   at most, as long as steps wait as planned\n",
                        format_bytes(*guaranteed));
  }
  for (const MemoryMetrics& memory : fullest_of_each_kind(m)) {
    const std::string name = memory.name + " memory";
    text += fmt::format("  {:<16} {:>12}   of {}\n", name, format_bytes(memory.peak),
                        memory.capacity ? format_bytes(*memory.capacity) : "unlimited");
  }
  if (problem.states) {
    text += fmt::format("  optimizer states {:>12}   of {}, {}; updates {}{}{}\n",
                        format_bytes(bytes_of_kind(problem.graph, TensorKind::optimizer_state)),
                        written(question.optimizer), written(*problem.states), written(problem.update_kernels),
                        problem.keeps_averages ? ", averages kept" : "",
                        problem.clips_gradients ? ", gradients clipped" : "");
    if (!problem.parameter_groups.empty())
      text += fmt::format("{:34}groups {}\n", "", written(problem.parameter_groups));
  }
  if (problem.evaluation) text += evaluation_line(*problem.evaluation, answer);
  if (question.allocator.kind != AllocatorKind::exact) text += allocator_lines(question, problem, answer);
  if (m.moved > Bytes{0}) {
    text += fmt::format("  moved            {:>12}   exposed for {}{}\n", format_bytes(m.moved),
                        format_seconds(m.exposed_transfer),
                        answer.contention > Seconds{0} ? ", contention " + format_seconds(answer.contention) : "");
  }
  if (m.exchange > Seconds{0}) {
    text += fmt::format("  collectives      {:>12}   exposed for {}\n", format_seconds(m.exchange),
                        format_seconds(m.exposed_exchange));
  }
  if (!answer.errors.of.empty()) {
    const auto gradients = std::ranges::count(problem.graph.tensors, TensorKind::parameter_gradient, &Tensor::kind);
    text +=
        fmt::format("  gradient error   {:>12.3g}   of all as one vector, on white noise; {} of {} are approximate\n",
                    answer.errors.whole, answer.errors.of.size(), gradients);
  }
  if (question.transfers != Transfers::link) {
    text += fmt::format("  transfers        {:>12}   planned for those of the platform's links\n",
                        written(question.transfers));
  }
  if (answer.gap) {
    text += fmt::format("  of its class     {:>12}\n", class_of(*answer.gap));
  }
  if (!answer.note.empty()) text += fmt::format("  note: {}\n", answer.note);
  for (const std::string& note : problem.notes) text += fmt::format("  note: {}\n", note);
  if (const std::vector<KeptWhole> kept = kept_whole(problem.graph, *answer.schedule); !kept.empty()) {
    text += "  note: " + sentence(kept, problem.graph, *answer.schedule) + "\n";
  }
  for (const HostBound& used : host_bounds_used(*answer.schedule, problem.platform)) {
    text += "  " + sentence(used) + "\n";
  }
  const std::string simulated = format_seconds(Seconds{answer.simulate_s});
  text += answer.promised_peak ? fmt::format("  solved in        {:>12}   simulated in {}\n",
                                             format_seconds(Seconds{answer.solve_s}), simulated)
                               : fmt::format("  simulated in     {:>12}\n", simulated);
  if (answer.interval) {
    text += fmt::format("  time at least    {:>12}   at most {}\n", format_seconds(answer.interval->low),
                        format_seconds(answer.interval->high));
  }
  text += time_part_lines(answer) + candidate_lines(answer) + price_lines(answer);
  if (answer.configuration) text += "for " + answer.configuration->framework + ":\n" + answer.configuration->text;
  return text + at_peak_lines(problem, answer);
}

std::string infeasibility(const Question& question, const Answer& answer) {
  const std::string_view what = answer.outcome == Outcome::out_of_memory ? "out of memory" : "infeasible";
  std::string line = fmt::format("{}: {} within {}: {}", what, question.strategy.text,
                                 answer.budget ? format_bytes(*answer.budget) : "unlimited memory", answer.reason);
  if (answer.smallest_feasible) {
    line += fmt::format("; the smallest feasible budget is {}{} B ({})", answer.smallest_is_proven ? "" : "at most ",
                        answer.smallest_feasible->count, format_bytes(*answer.smallest_feasible));
    if (!answer.smallest_by.empty()) line += fmt::format(", which '{}' needs", answer.smallest_by);
  }
  return line;
}

std::string front_table(std::span<const Answer> front, std::span<const Answer> failed,
                        std::span<const std::string> plans) {
  const bool on_host = std::ranges::any_of(front, [](const Answer& a) { return host_peak(*a.metrics) > Bytes{0}; });
  std::string text = fmt::format("{:>14}  {:>12}  {:>14}  {:>12}{}{}\n", "peak_bytes", "peak", "iteration time",
                                 "above bound", on_host ? "          host" : "", plans.empty() ? "" : "  plan");
  for (std::size_t k = 0; k < front.size(); ++k) {
    const Answer& answer = front[k];
    const std::string host = on_host ? fmt::format("  {:>12}", format_bytes(host_peak(*answer.metrics))) : "";
    text += fmt::format("{:>14}  {:>12}  {:>14}  {:>12}{}{}\n", answer.metrics->peak.count,
                        format_bytes(answer.metrics->peak), format_seconds(answer.metrics->makespan),
                        percent_above(answer.metrics->makespan.value, answer.bounds->time().value), host,
                        plans.empty() ? "" : "  " + plans[k]);
  }
  for (const Answer& answer : failed) {
    text += fmt::format("{:>14}  {:>12}  {:>14}  out of memory {}\n", answer.metrics->peak.count,
                        format_bytes(answer.metrics->peak), format_seconds(answer.metrics->makespan), answer.reason);
  }
  return text;
}

}  // namespace plimsoll
