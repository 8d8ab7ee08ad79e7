#include "sim/judge/check.h"

#include <algorithm>
#include <utility>

#include "sim/core/slices.h"
#include "sim/judge/judge.h"

namespace plimsoll {

Judge::Judge(const Schedule& schedule, const Graph& graph, const Platform& platform, std::size_t limit)
    : schedule_(schedule),
      graph_(graph),
      platform_(platform),
      limit_(limit),
      held_at_(schedule.buffers.size(), not_yet),
      outlives_free_(schedule.buffers.size(), false),
      was_approximate_(schedule.buffers.size(), false),
      makers_(graph.tensors.size()),
      is_updated_(graph.storages, false),
      callers_(platform.devices.size()),
      route_finder_(platform) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) makers_[t.index].push_back(id_at<OpId>(o));
    }
    if (graph.ops[o].phase != Phase::update) continue;
    for (const TensorId t : graph.ops[o].mutates) {  // gradients, too, where ranks sum them
      if (graph[t].kind != TensorKind::parameter_gradient) is_updated_[graph[t].storage.index] = true;
    }
  }
}

std::vector<Violation> Judge::run() {
  if (!well_formed()) return std::move(found_);
  prepare();
  for (const BufferId b : schedule_.resident) start_resident(b);
  judge_parameters();
  judge_header_gradients();
  for (std::size_t s = 0; s < schedule_.steps.size() && found_.size() < limit_; ++s) {
    if (!before_->next()) {
      report(Rule::malformed, id_at<StepId>(s),
             "the order of the steps takes more than " + std::to_string(most_clock_entries) +
                 " clock entries to follow: too many streams wait for one another");
      return std::move(found_);
    }
    judge(id_at<StepId>(s));
  }
  if (found_.size() < limit_) judge_completeness();
  return std::move(found_);
}

/// Of a schedule whose indices all name something.
void Judge::prepare() {
  before_.emplace(schedule_);
  slices_ = sequence_slices(graph_);
  std::size_t runs = 0;
  for (const Op& op : graph_.ops) {
    first_run_.push_back(runs);
    runs += std::size_t{op.phase == Phase::update ? updates() : schedule_.micro_batches} * schedule_.replicas;
  }
  ran_.resize(runs);
  const std::size_t storages = std::max<std::size_t>(1, graph_.storages);
  lists_a_storage_ = static_cast<std::uint32_t>(
      std::min<std::size_t>(std::max(1U, schedule_.micro_batches), 1 + 2 * schedule_.buffers.size() / storages));
  newest_live_.resize(storages * lists_a_storage_, none);
  for (const Collective& collective : schedule_.collectives) {
    for (const std::vector<BufferId>* list : {&collective.inputs, &collective.outputs}) {
      for (const BufferId b : *list) outlives_free_[b.index] = true;
    }
  }
  for (const Stream& stream : schedule_.streams) {
    const auto at = [&](MemoryId place) { return route_finder_.memory_at(stream.device, place); };
    ends_.push_back({at(stream.way.from), at(stream.way.to), at(place::host)});
  }
  prepare_exchanges();
}

Judge::Held& Judge::held_in(BufferId b) {
  std::uint32_t& at = held_at_[b.index];
  if (at == no_more) return dead_ = {.life = Life::dead};
  if (at == not_yet) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<std::uint32_t>(held_.size()));
      held_.emplace_back();
    }
    at = unused_.back();
    unused_.pop_back();
    const Buffer& buffer = schedule_[b];
    held_[at] = {};
    if (!makers_[buffer.tensor.index].empty()) {
      held_[at].sums = RangedSums(buffer.range_offset, buffer.range_length);
    }
  }
  return held_[at];
}

Judge::Life Judge::life_of(BufferId b) const {
  const std::uint32_t at = held_at_[b.index];
  return at == not_yet ? Life::unborn : at == no_more ? Life::dead : held_[at].life;
}

void Judge::forget(BufferId b) {
  unused_.push_back(held_at_[b.index]);
  held_at_[b.index] = no_more;
}

std::string Judge::text(StepId s) const {
  const Step& step = schedule_[s];
  std::string words = "step " + std::to_string(s.index);
  if (step.op != no_op) {
    const bool counts_updates = !schedule_.updates.are_synchronous() && graph_[step.op].phase == Phase::update;
    words += " ('" + graph_[step.op].name + (counts_updates ? "', update " : "', micro-batch ") +
             std::to_string(step.micro_batch) + ")";
  }
  return words;
}

std::string Judge::text(BufferId b) const {
  const Buffer& buffer = schedule_[b];
  return "buffer " + std::to_string(b.index) + " ('" + graph_[buffer.tensor].name + "', micro-batch " +
         std::to_string(buffer.micro_batch) + ")";
}

void Judge::report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what) {
  if (found_.size() < limit_) found_.push_back({rule, step, buffer, std::move(what)});
}

void Judge::report(Rule rule, StepId step, BufferId buffer, const std::string& what) {
  report(rule, std::optional(step), std::optional(buffer), text(step) + " " + what + " " + text(buffer));
}

void Judge::report(Rule rule, StepId step, const std::string& what) {
  report(rule, std::optional(step), std::nullopt, what);
}

std::vector<Violation> check(const Schedule& schedule, const Graph& graph, const Platform& platform,
                             std::size_t limit) {
  return Judge(schedule, graph, platform, limit).run();
}

std::string name_of(Rule rule) {
  switch (rule) {
    case Rule::malformed:
      return "malformed";
    case Rule::wrong_place:
      return "wrong_place";
    case Rule::not_resident:
      return "not_resident";
    case Rule::missing_input:
      return "missing_input";
    case Rule::wrong_value:
      return "wrong_value";
    case Rule::not_ordered:
      return "not_ordered";
    case Rule::wrong_output:
      return "wrong_output";
    case Rule::lossy:
      return "lossy";
    case Rule::incomplete:
      return "incomplete";
    case Rule::repeated:
      return "repeated";
    case Rule::freed_twice:
      return "freed_twice";
    case Rule::collective:
      return "collective";
    case Rule::wrong_cost:
      return "wrong_cost";
  }
  return "unknown";
}

}  // namespace plimsoll
