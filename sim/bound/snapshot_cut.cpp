#include "sim/bound/snapshot_cut.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t source = 0, sink = 1, no_node = UINT32_MAX;

/// Of the time of all that may run again: a cut that is better by less is no better.
constexpr double close = 1e-10;

/// Where both cost the same; the first keeps more.
double meeting(const SnapshotCut& more, const SnapshotCut& less) {
  return (less.extra - more.extra).value / (more.weight - less.weight);
}

}  // namespace

SnapshotCuts::SnapshotCuts(const SnapshotModel& model, Instant instant) : model_(model), instant_(std::move(instant)) {
  build();
}

void SnapshotCuts::build() {
  const std::vector<Side>& side = instant_.side;
  std::uint32_t nodes = sink + 1;
  node_of_.assign(model_.ops.size(), no_node);
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    const SnapshotOp& op = model_.ops[o];
    if (side[o] == Side::after) node_of_[o] = source;
    if (side[o] != Side::before && side[o] != Side::beside) continue;
    if (!op.reads.empty() || !op.makes.empty()) node_of_[o] = nodes++;
    could_leave_ += out() * op.first.value;
  }
  std::vector<std::optional<std::uint32_t>> kept_by;
  const auto arc = [&](const PricedArc& made, std::optional<std::uint32_t> value = {}) {
    arcs_.push_back(made);
    kept_by.push_back(value);
  };
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    if (node_of_[o] == no_node || node_of_[o] == source) continue;
    const SnapshotOp& op = model_.ops[o];
    if (side[o] == Side::beside) {
      if (out() > 0) arc({node_of_[o], sink, 0, out() * op.first.value});
      continue;
    }
    arc({node_of_[o], sink, op.once ? FlowGraph::unlimited : op.again.value, 0});
    if (!op.once) again_ += op.again.value;
  }
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    const SnapshotValue& value = model_.values[v];
    if (instant_.counted[v]) continue;
    if (value.maker && (side[*value.maker] == Side::after || side[*value.maker] == Side::itself)) continue;
    const auto is_before = [&](std::uint32_t o) { return side[o] == Side::before; };
    if (!value.maker && std::ranges::none_of(value.readers, is_before)) continue;  // it may come later
    const std::uint32_t maker = value.maker ? node_of_[*value.maker] : sink;
    const auto bytes = static_cast<double>(value.bytes.count);
    std::vector<std::uint32_t> readers;
    for (const std::uint32_t r : value.readers) {
      if (side[r] != Side::itself) readers.push_back(node_of_[r]);
    }
    if (readers.empty()) continue;
    if (std::ranges::find(readers, source) != readers.end()) {
      arc({source, maker, 0, bytes}, v);
    } else if (readers.size() == 1) {
      arc({readers.front(), maker, 0, bytes}, v);
    } else {
      const std::uint32_t any = nodes++;
      for (const std::uint32_t r : readers) arc({r, any, FlowGraph::unlimited, 0});
      arc({any, maker, 0, bytes}, v);
    }
  }
  network_ = FlowGraph(nodes);
  for (std::size_t a = 0; a < arcs_.size(); ++a) {
    const auto& [from, to, seconds, bytes] = arcs_[a];
    const bool is_priced = seconds < FlowGraph::unlimited;
    const std::size_t edge = network_.edge(from, to, is_priced ? 0 : FlowGraph::unlimited);
    if (is_priced) priced_.push_back({edge, seconds, bytes, kept_by[a]});
  }
  nodes_ = nodes;
  std::vector<bool> nothing(nodes, false);
  nothing[source] = true;
  keep_all_ = counted(nothing, 0).weight;
}

SnapshotCut SnapshotCuts::counted(const std::vector<bool>& source_side, double price) const {
  SnapshotCut cut;
  cut.price = price;
  cut.runs.resize(model_.ops.size(), false);
  cut.again.resize(model_.ops.size(), false);
  cut.kept.resize(model_.values.size(), false);
  const std::vector<Side>& side = instant_.side;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    cut.runs[o] = node_of_[o] != no_node && source_side[node_of_[o]];
    if (!cut.runs[o]) continue;
    if (side[o] == Side::before) {
      cut.again[o] = true;
      cut.extra += model_.ops[o].again;
    } else if (side[o] == Side::beside) {
      cut.weight += out() * model_.ops[o].first.value;
    }
  }
  for (std::size_t v = 0; v < model_.values.size(); ++v) {
    const SnapshotValue& value = model_.values[v];
    if (instant_.counted[v]) continue;
    const auto is_before = [&](std::uint32_t o) { return side[o] == Side::before; };
    const bool is_there =
        value.maker ? (is_before(*value.maker) || side[*value.maker] == Side::beside) && !cut.runs[*value.maker]
                    : std::ranges::any_of(value.readers, is_before);
    const auto reads = [&](std::uint32_t o) { return bool{cut.runs[o]}; };
    if (!is_there || std::ranges::none_of(value.readers, reads)) continue;
    cut.kept[v] = true;
    cut.kept_bytes += value.bytes;
  }
  cut.weight += static_cast<double>(cut.kept_bytes.count);
  return cut;
}

SnapshotCut SnapshotCuts::at(double price) {
  EXPECTS(price >= 0);
  const double scale = capacity_scale(again_, price * keep_all_);
  for (const auto& [edge, seconds, bytes, value] : priced_) {
    network_.set_capacity(edge, whole_capacity(scale * (seconds + price * bytes)));
  }
  const FlowGraph::Cut smallest = network_.cut(source, sink);
  SnapshotCut result = counted(smallest.source_side, price);
  result.value = smallest.flow / scale * (1 - flow_rounding);
  return result;
}

void SnapshotCuts::decide(std::uint32_t value, std::optional<bool> kept) {
  EXPECTS(out() <= 0);
  decided_.resize(model_.values.size());
  decided_[value] = kept;
}

bool SnapshotCuts::is_decided(std::uint32_t value, bool kept) const {
  return !decided_.empty() && decided_[value] == kept;
}

std::optional<SnapshotCut> SnapshotCuts::decided_at(double price) {
  EXPECTS(price >= 0);
  double at_most = 0, paid = 0;
  for (const Priced& each : priced_) at_most += each.seconds + price * each.bytes;
  const double scale = at_most > 0 ? largest_flow / at_most : 1;
  for (const auto& [edge, seconds, bytes, value] : priced_) {
    const double capacity = seconds + price * bytes;
    if (value && is_decided(*value, true)) {
      paid += capacity;
      network_.set_capacity(edge, 0);
    } else if (value && is_decided(*value, false)) {
      network_.set_capacity(edge, 2 * largest_flow);
    } else {
      network_.set_capacity(edge, whole_capacity(scale * capacity));
    }
  }
  const FlowGraph::Cut smallest = network_.cut(source, sink);
  if (smallest.flow > largest_flow) return std::nullopt;
  SnapshotCut result = counted(smallest.source_side, price);
  for (std::size_t v = 0; v < decided_.size(); ++v) {
    if (decided_[v] != true || result.kept[v]) continue;
    result.kept[v] = true;
    result.kept_bytes += model_.values[v].bytes;
    result.weight += static_cast<double>(model_.values[v].bytes.count);
  }
  result.value = (smallest.flow / scale + paid) * (1 - 2 * flow_rounding);
  return result;
}

/// Best ones at their prices.
SnapshotCut SnapshotCuts::found(const std::vector<bool>& source_side, double price) const {
  SnapshotCut cut = counted(source_side, price);
  cut.value = least_cost(arcs_, source_side, price, keep_all_);
  return cut;
}

/// With the one that runs nothing again, and, with copies, the one behind which what is to leave takes as long as what
/// leaves meanwhile.
void SnapshotCuts::begin() {
  if (!steps_.empty()) return;
  behind_.emplace(nodes_, arcs_, keep_all_);
  steps_.push_back({counted(behind_->source_side(), 0)});
  if (!(out() > 0)) return find_least_bytes();
  const double price = 1 / out();
  const CutsBetween::Found dearest = behind_->at(price);
  steps_.push_back({found(behind_->source_side(dearest), price), behind_->before(dearest)});
  behind_ = behind_->behind(dearest);
}

/// The last one keeps the fewest bytes, whatever it takes.
void SnapshotCuts::find_least_bytes() {
  if (!behind_) return;
  const CutsBetween::Found least = behind_->at(FlowGraph::unlimited);
  Step last{counted(behind_->source_side(least), 0), behind_->before(least)};
  last.is_dear = out() > 0;
  steps_.push_back(std::move(last));
  behind_.reset();
}

/// Whether a better one was found between it and the one before.
bool SnapshotCuts::splits(std::size_t step, Proof proof) {
  Step& less = steps_[step];
  const SnapshotCut& more = steps_[step - 1].cut;
  if (less.is_next && (less.price || proof == Proof::none)) return false;
  if (!(more.weight > less.cut.weight && less.cut.extra > more.extra)) {
    less.is_next = true;
    return false;
  }
  const double price = meeting(more, less.cut);
  const CutsBetween::Found between = less.before->at(price);
  const double cost_more = between.seconds + price * between.bytes;
  if (cost_more >= -close * again_) {
    less.is_next = true;
    if (proof == Proof::none) return false;
    less.price = price;
    less.value = least_cost(arcs_, less.before->source_side(between), price, keep_all_);
    return false;
  }
  Step made{found(less.before->source_side(between), price), less.before->before(between)};
  made.is_dear = less.is_dear;
  less.before = less.before->behind(between);
  steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(step), std::move(made));
  return true;
}

InstantBound SnapshotCuts::bound(Bytes budget) {
  InstantBound bound;
  const double room = static_cast<double>((budget - instant_.bytes).count) + could_leave_;
  const auto gains = [&](double price, double value) {
    const double paid = price * room;
    const double extra = value - paid - flow_rounding * (value + std::abs(paid));
    if (extra <= bound.extra.value) return;
    bound.extra = Seconds{extra};
    bound.price = price;
  };
  begin();
  const auto first_within = [&] {
    const auto fits = [&](const Step& step) { return step.cut.weight <= room || step.is_dear; };
    return static_cast<std::size_t>(std::ranges::find_if(steps_, fits) - steps_.begin());
  };
  std::size_t within = first_within();
  if (within == steps_.size() || steps_[within].is_dear) {
    const SnapshotCut& last = steps_[within - 1].cut;
    if (out() > 0) {  // the more has to leave the longer it takes
      gains(last.price, last.value);
      bound.over = last;
    } else {
      bound.needs = instant_.bytes + last.kept_bytes;
    }
    return bound;
  }
  while (within > 0 && splits(within, Proof::value)) within = first_within();
  bound.within = steps_[within].cut;
  if (within == 0) return bound;
  bound.over = steps_[within - 1].cut;
  gains(bound.over->price, bound.over->value);
  gains(bound.within->price, bound.within->value);
  if (const std::optional<double> price = steps_[within].price) {
    gains(*price, steps_[within].value);
    if (bound.extra > Seconds{0}) bound.price = *price;  // of more memory, where the bound bends at the budget
  }
  return bound;
}

Bytes SnapshotCuts::fits(const SnapshotCut& cut) const {
  return instant_.bytes + Bytes{static_cast<std::int64_t>(std::ceil(cut.weight - could_leave_))};
}

std::vector<SnapshotCut> SnapshotCuts::front() {
  begin();
  find_least_bytes();
  for (std::size_t step = 1; step < steps_.size();) {
    if (!splits(step, Proof::none)) ++step;
  }
  std::vector<SnapshotCut> front;
  for (const Step& step : steps_) {
    const bool is_new = front.empty() || step.cut.weight < front.back().weight || step.cut.extra < front.back().extra;
    if (!is_new) continue;
    if (!front.empty() && step.cut.extra <= front.back().extra) front.pop_back();
    front.push_back(step.cut);
  }
  return front;
}

}  // namespace plimsoll
