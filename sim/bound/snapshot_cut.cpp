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

double cost(const SnapshotCut& cut, double price) {
  return cut.extra.value + price * cut.weight;
}

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
  struct Arc {
    std::uint32_t from, to;
    double seconds, bytes;
    std::optional<std::uint32_t> value = {};
  };
  std::vector<Arc> arcs;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    if (node_of_[o] == no_node || node_of_[o] == source) continue;
    const SnapshotOp& op = model_.ops[o];
    if (side[o] == Side::beside) {
      if (out() > 0) arcs.push_back({node_of_[o], sink, 0, out() * op.first.value});
      continue;
    }
    arcs.push_back({node_of_[o], sink, op.once ? FlowGraph::unlimited : op.again.value, 0});
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
      arcs.push_back({source, maker, 0, bytes, v});
    } else if (readers.size() == 1) {
      arcs.push_back({readers.front(), maker, 0, bytes, v});
    } else {
      const std::uint32_t any = nodes++;
      for (const std::uint32_t r : readers) arcs.push_back({r, any, FlowGraph::unlimited, 0});
      arcs.push_back({any, maker, 0, bytes, v});
    }
  }
  network_ = FlowGraph(nodes);
  for (const Arc& arc : arcs) {
    const bool is_priced = arc.seconds < FlowGraph::unlimited;
    const std::size_t edge = network_.edge(arc.from, arc.to, is_priced ? 0 : FlowGraph::unlimited);
    if (is_priced) priced_.push_back({edge, arc.seconds, arc.bytes, arc.value});
  }
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

SnapshotCut SnapshotCuts::cut(double price, bool bytes_only) {
  EXPECTS(price >= 0);
  const double at_most = (bytes_only ? 1 : price) * keep_all_;  // what a smallest cut costs
  const double scale = capacity_scale(bytes_only ? 0 : again_, at_most);
  for (const auto& [edge, seconds, bytes, value] : priced_) {
    network_.set_capacity(edge, whole_capacity(scale * (bytes_only ? bytes : seconds + price * bytes)));
  }
  const FlowGraph::Cut smallest = network_.cut(source, sink);
  SnapshotCut result = counted(smallest.source_side, price);
  if (!bytes_only) result.value = smallest.flow / scale * (1 - flow_rounding);
  return result;
}

SnapshotCut SnapshotCuts::at(double price) {
  return cut(price, false);
}

SnapshotCut SnapshotCuts::least_bytes() {
  return cut(0, true);
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

InstantBound SnapshotCuts::bound(Bytes budget) {
  InstantBound bound;
  const double room = static_cast<double>((budget - instant_.bytes).count) + could_leave_;
  const auto gains = [&](const SnapshotCut& cut) {
    const double paid = cut.price * room;
    const double extra = cut.value - paid - flow_rounding * (cut.value + std::abs(paid));
    if (extra <= bound.extra.value) return;
    bound.extra = Seconds{extra};
    bound.price = cut.price;
  };
  if (!nothing_again_) nothing_again_ = at(0);
  SnapshotCut over = *nothing_again_;
  if (over.weight <= room) {
    bound.within = std::move(over);
    return bound;
  }
  SnapshotCut within;
  if (out() > 0) {
    within = at(1 / out());
    gains(within);
    if (within.weight > room) {  // the more has to leave the longer it takes
      bound.over = std::move(within);
      return bound;
    }
  } else {
    if (!least_bytes_) least_bytes_ = least_bytes();
    within = *least_bytes_;
    if (within.weight > room) {
      bound.needs = instant_.bytes + within.kept_bytes;
      return bound;
    }
  }
  while (over.weight > within.weight && within.extra > over.extra) {
    const double price = meeting(over, within);
    SnapshotCut between = at(price);
    gains(between);
    if (cost(between, price) >= cost(over, price) - close * again_) {
      if (bound.extra > Seconds{0}) bound.price = price;  // of more memory, where the bound bends at the budget
      break;
    }
    (between.weight > room ? over : within) = std::move(between);
  }
  bound.over = std::move(over);
  bound.within = std::move(within);
  return bound;
}

Bytes SnapshotCuts::fits(const SnapshotCut& cut) const {
  return instant_.bytes + Bytes{static_cast<std::int64_t>(std::ceil(cut.weight - could_leave_))};
}

std::vector<SnapshotCut> SnapshotCuts::front() {
  std::vector<SnapshotCut> front;
  std::vector<SnapshotCut> ahead;  // not looked at yet: weights rise from the last one on
  front.push_back(at(0));
  ahead.push_back(least_bytes());
  while (!ahead.empty()) {
    const SnapshotCut& more = front.back();
    const SnapshotCut& less = ahead.back();
    if (more.weight > less.weight && less.extra > more.extra) {
      const double price = meeting(more, less);
      SnapshotCut between = at(price);
      if (cost(between, price) < cost(more, price) - close * again_) {
        ahead.push_back(std::move(between));
        continue;
      }
    }
    if (less.weight < more.weight || less.extra < more.extra) {
      if (less.extra <= more.extra) front.pop_back();
      front.push_back(std::move(ahead.back()));
    }
    ahead.pop_back();
  }
  return front;
}

}  // namespace plimsoll
