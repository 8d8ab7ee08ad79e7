// The judge of flows: the steps of a collective are flows from rank to rank, over routes that exist, which move enough
// and bring what each rank gives to all that need it; all ranks of a group begin its collectives in one order; who
// reads a result waits until the ranks have given their parts. Rules: collective, and wrong_place and malformed of
// flows.

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "sim/judge/exchange.h"
#include "sim/judge/judges.h"
#include "sim/judge/residency.h"

namespace plimsoll {
namespace {

/// Of a group's collectives.
struct Begun {
  std::map<MemoryId, std::map<CollectiveId, StepId>> by_rank;  ///< the first flow that it sends
  std::map<CollectiveId, std::pair<StepId, MemoryId>> first;   ///< of all ranks' and whose it is
};

class FlowJudge final : public Judge {
 public:
  FlowJudge(Walk& walk, ResidencyJudge& residency) : Judge(walk), residency_(residency) {}
  void prepare() override;
  void uses(StepId s, BufferId b, std::string_view verb) override;
  void exchanges(StepId s) override;

 private:
  /// Whether all ranks of a group begin its collectives in one order.
  void judge_order();
  std::optional<Exchange::Flow> flow_of(StepId s, const Exchange& exchange);

  ResidencyJudge& residency_;
};

void FlowJudge::prepare() {
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    const CollectiveId c = schedule_.steps[s].collective;
    if (c == no_collective) continue;
    if (const std::optional<Exchange::Flow> flow = flow_of(id_at<StepId>(s), walk_.exchanges[c.index])) {
      walk_.exchanges[c.index].add(*flow);
    }
  }
  for (std::size_t c = 0; c < walk_.exchanges.size(); ++c) {
    walk_.exchanges[c].end_of_flows();
    if (!walk_.exchanges[c].flows().empty()) continue;
    report(Rule::collective, std::nullopt, std::nullopt, "collective " + std::to_string(c) + " has no steps");
  }
  judge_order();
}

/// A rank begins a collective with the first flow that it sends. Two ranks that begin two of their group in opposite
/// orders wait for each other, however their flows are issued here: a communicator has one order.
void FlowJudge::judge_order() {
  std::map<std::set<MemoryId>, Begun> groups;
  for (std::size_t c = 0; c < walk_.exchanges.size(); ++c) {
    const Collective& collective = schedule_.collectives[c];
    const auto memory = [&](std::size_t rank) { return schedule_[collective.inputs[rank * collective.values]].memory; };
    std::set<MemoryId> ranks;
    for (std::size_t rank = 0; rank < collective.ranks(); ++rank) ranks.insert(memory(rank));
    Begun& begun = groups[std::move(ranks)];
    for (const Exchange::Flow& flow : walk_.exchanges[c].flows()) {  // in the order of the steps
      begun.by_rank[memory(flow.from)].try_emplace(id_at<CollectiveId>(c), flow.step);
      begun.first.try_emplace(id_at<CollectiveId>(c), flow.step, memory(flow.from));
    }
  }
  for (const auto& [ranks, begun] : groups) {
    for (const auto& [rank, flows] : begun.by_rank) {
      std::vector<std::pair<StepId, CollectiveId>> order;
      for (const auto& [collective, step] : flows) order.emplace_back(step, collective);
      std::ranges::sort(order);
      for (std::size_t k = 1; k < order.size(); ++k) {
        const CollectiveId before = order[k - 1].second, behind = order[k].second;
        const auto& [first, other] = begun.first.at(behind);
        const bool is_crossed = first < begun.first.at(before).first && begun.by_rank.at(other).contains(before);
        if (!is_crossed) continue;
        report(Rule::collective, order[k - 1].first,
               text(order[k - 1].first) + " begins collective " + std::to_string(before.index) + " on '" +
                   platform_[rank].name + "', which begins collective " + std::to_string(behind.index) + " later; '" +
                   platform_[other].name + "' begins that one first (step " + std::to_string(first.index) +
                   "): ranks of one group that begin its collectives in opposite " + "orders wait for each other");
      }
    }
  }
}

/// The flow that a step of a collective is: it reads a buffer of each value of one rank and fills those of another.
std::optional<Exchange::Flow> FlowJudge::flow_of(StepId s, const Exchange& exchange) {
  const Step& step = schedule_[s];
  const std::uint32_t values = schedule_.collectives[step.collective.index].values;
  const auto reads = schedule_.buffers_in(step.reads);
  const auto fills = schedule_.buffers_in(step.allocates.count > 0 ? step.allocates : step.writes);
  const bool fills_both_ways = step.allocates.count > 0 && step.writes.count > 0;
  if (!step.work.is_transfer() || reads.size() != values || fills.size() != values || fills_both_ways) {
    report(Rule::collective, s,
           text(s) + " must move one buffer of each value of a rank to those of another, over a route");
    return std::nullopt;
  }
  const Endpoints& ends = schedule_.routes[step.work.route.index];
  std::optional<std::uint32_t> sender, receiver;
  for (std::uint32_t v = 0; v < values; ++v) {
    const BufferId from = reads[v], to = fills[v];
    const std::optional<Exchange::Place> begins = exchange.place_of(from), comes = exchange.place_of(to);
    const bool is_pair = begins && comes && begins->value == v && comes->value == v && begins->rank != comes->rank;
    if (!is_pair || sender.value_or(begins->rank) != begins->rank || receiver.value_or(comes->rank) != comes->rank) {
      report(Rule::collective, s, to, "does not copy between buffers of two ranks of its collective: it fills");
      return std::nullopt;
    }
    sender = begins->rank;
    receiver = comes->rank;
    if (schedule_[from].memory != ends.from)
      report(Rule::wrong_place, s, from, "begins its route in another memory than that of");
    if (schedule_[to].memory != ends.to)
      report(Rule::wrong_place, s, to, "ends its route in another memory than that of");
  }
  if (!walk_.is_between_devices(step) || walk_.ends_of(step).from != ends.from || walk_.ends_of(step).to != ends.to) {
    report(Rule::wrong_place, s,
           text(s) + " must be on a stream from its sender's memory to its receiver's, of one of the two devices");
  }
  if (step.kind != StepKind::collective)
    report(Rule::malformed, s, text(s) + " is a step of a collective, but its kind is not 'collective'");
  const std::optional<Route>& way = walk_.route(step.work.route);
  if (!way) {
    report(Rule::wrong_place, s, text(s) + " sends over a route that does not exist");
    return std::nullopt;
  }
  return Exchange::Flow{s, *sender, *receiver, way->latency};
}

void FlowJudge::exchanges(StepId s) {
  const Step& step = schedule_[s];
  Exchange& exchange = walk_.exchanges[step.collective.index];
  const Collective& collective = schedule_.collectives[step.collective.index];
  if (!exchange.is_next(s)) return;  // reported as no flow of it
  const auto finished = [this](StepId earlier) { return walk_.before.finished(earlier); };
  if (const std::optional<std::string> wrong = exchange.next(finished)) {
    report(Rule::collective, s, text(s) + " " + *wrong);
  }
  if (exchange.carries_all()) {
    for (const BufferId input : collective.inputs) {
      residency_.uses(s, input, "sends on");
      uses(s, input, "sends on");
    }
  }
  for (const BufferId b : schedule_.buffers_in(step.writes)) holdings_[b].readers.push_back(s);
  for (const BufferId b : schedule_.buffers_in(step.allocates)) holdings_[b].readers.push_back(s);
  if (!exchange.ends_with(s)) return;
  if (const std::optional<std::string> wrong = exchange.whole()) {
    report(Rule::collective, s, "collective " + std::to_string(step.collective.index) + ": " + *wrong);
  }
}

/// A reader of a result waits until every rank that it depends on has given its part; of an all-reduce its own rank
/// too, whose part may come back with the others'.
void FlowJudge::uses(StepId s, BufferId b, std::string_view /*verb*/) {
  const HeldValue& held = holdings_[b];
  const CollectiveId from = held.from;
  if (from == no_collective || held.life != Life::live || schedule_[s].collective == from) return;
  const Exchange& exchange = walk_.exchanges[from.index];
  const Collective& collective = schedule_.collectives[from.index];
  const Exchange::Place place = exchange.place_of(b).value_or(Exchange::Place{});
  const std::uint32_t own = place.rank;
  const bool needs_own = collective.kind == CollectiveKind::all_reduce;
  std::vector<bool> given(collective.ranks(), false);
  for (const Exchange::Flow& flow : exchange.flows()) {
    if (!given[flow.from]) given[flow.from] = walk_.before.finished(flow.step);
  }
  for (std::uint32_t rank = 0; rank < given.size(); ++rank) {
    if (given[rank] || !(rank == own ? needs_own : exchange.needs(own, rank))) continue;
    report(Rule::collective, s, b,
           "reads, before the collective has had " + text(collective.inputs[rank * collective.values + place.value]) +
               ", its result");
  }
}

}  // namespace

std::unique_ptr<Judge> flow_judge(Walk& walk, ResidencyJudge& residency) {
  return std::make_unique<FlowJudge>(walk, residency);
}

}  // namespace plimsoll
