#include "sim/bound/packed_cuts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/bound/least_mix.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t source_node = 0, sink_node = 1, no_op_node = UINT32_MAX;

/// Of the time of all ops: a cut that is better by less ends the search.
constexpr double close_cut = 1e-7;
/// Without copies a byte is worth at most so many times what all ops take for a byte of all values.
constexpr double dear = 1e6;
/// Of errors: less is priced as this.
constexpr double least_square = 1e-12;
constexpr int most_cuts = 120;

/// What no schedule takes less of, by the prices of the cut.
Seconds least_with(const PackedCut& cut, double room, double square) {
  const double paid = cut.memory_price * room + cut.error_price * square;
  return Seconds{cut.value - paid - 4 * flow_rounding * (cut.value + std::abs(paid))};
}

/// Also where it is no number, since two columns are all but the same.
double limited_price(double price, double dearest) {
  return price < dearest ? price : dearest;
}

}  // namespace

PackedCuts::PackedCuts(const SnapshotModel& model, Instant instant, KeptWays ways)
    : model_(model), instant_(std::move(instant)), ways_(std::move(ways)) {
  build();
}

/// With copies a second of packing is one in which more can leave.
double PackedCuts::cost(const KeptWay& way, double memory_price, double error_price, bool bytes_only) const {
  const auto bytes = static_cast<double>(way.bytes.count);
  if (bytes_only) return memory_price * bytes + error_price * way.square;
  const double packing = std::max(0.0, 1 - memory_price * out()) * way.pack.value;
  return packing + way.unpack.value + memory_price * bytes + error_price * way.square;
}

std::uint32_t PackedCuts::best_way(std::uint32_t value, double memory_price, double error_price) const {
  const std::vector<KeptWay>& ways = ways_.values[value].ways;
  std::uint32_t best = 0;
  for (std::uint32_t w = 1; w < ways.size(); ++w) {
    if (cost(ways[w], memory_price, error_price) < cost(ways[best], memory_price, error_price)) best = w;
  }
  return best;
}

void PackedCuts::build() {
  const std::vector<Side>& side = instant_.side;
  std::uint32_t nodes = sink_node + 1;
  node_of_.assign(model_.ops.size(), no_op_node);
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    const SnapshotOp& op = model_.ops[o];
    if (side[o] == Side::after) node_of_[o] = source_node;
    if (side[o] != Side::before && side[o] != Side::beside) continue;
    if (!op.reads.empty() || !op.makes.empty()) node_of_[o] = nodes++;
    could_leave_ += out() * op.first.value;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> never;  // edges that are not cut
  struct Edge {
    std::uint32_t from, to;
  };
  std::vector<Edge> op_edges, any_edges, whole_edges;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    if (node_of_[o] == no_op_node || node_of_[o] == source_node) continue;
    const SnapshotOp& op = model_.ops[o];
    if (side[o] == Side::before && op.once) {
      never.emplace_back(node_of_[o], sink_node);
      continue;
    }
    if (side[o] == Side::beside && !(out() > 0)) continue;
    const bool before = side[o] == Side::before;
    op_edges.push_back({node_of_[o], sink_node});
    of_ops_.push_back({0, before ? op.again.value : 0, before ? 0 : out() * op.first.value});
    if (before) again_ += op.again.value;
  }
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    const SnapshotValue& value = model_.values[v];
    const KeptValue& kept = ways_.values[v];
    if (instant_.counted[v]) continue;
    if (value.maker && (side[*value.maker] == Side::after || side[*value.maker] == Side::itself)) continue;
    const auto is_before = [&](std::uint32_t o) { return side[o] == Side::before; };
    if (!value.maker && std::ranges::none_of(value.readers, is_before)) continue;  // it may come later
    const std::uint32_t maker = value.maker ? node_of_[*value.maker] : sink_node;
    std::vector<std::uint32_t> forwards, backwards;
    for (const std::uint32_t r : value.readers) {
      if (side[r] != Side::before && side[r] != Side::beside) continue;
      (is_backward(model_.problem->graph.ops[r].phase) ? backwards : forwards).push_back(node_of_[r]);
    }
    const auto joined = [&](const std::vector<std::uint32_t>& readers) {
      if (readers.size() == 1) return readers.front();
      const std::uint32_t any = nodes++;
      for (const std::uint32_t r : readers) never.emplace_back(r, any);
      return any;
    };
    const bool packs = kept.ways.size() > 1;
    std::optional<std::uint32_t> any = kept.is_read_after ? std::optional(source_node) : std::nullopt;
    if (!any && !packs) std::ranges::copy(std::exchange(forwards, {}), std::back_inserter(backwards));
    std::optional<std::uint32_t> whole;
    if (packs && !forwards.empty()) whole = joined(forwards);
    if (!any && whole && !backwards.empty()) backwards.push_back(*whole);
    if (!any && !backwards.empty()) any = joined(backwards);
    if (!any && whole) any = whole;
    if (!any) continue;
    OfValue of{v, {}, {}};
    of.any = any_edges.size();
    any_edges.push_back({*any, maker});
    if (whole) {
      of.whole = whole_edges.size();
      whole_edges.push_back({*whole, maker});
    }
    of_values_.push_back(of);
    values_.push_back(v);
    const auto bytes = static_cast<double>(kept.ways.front().bytes.count);
    keep_all_ += bytes;
  }
  network_ = FlowGraph(nodes);
  for (const auto& [from, to] : never) network_.edge(from, to, FlowGraph::unlimited);
  for (std::size_t k = 0; k < op_edges.size(); ++k)
    of_ops_[k].edge = network_.edge(op_edges[k].from, op_edges[k].to, 0);
  for (OfValue& of : of_values_) {
    of.any = network_.edge(any_edges[*of.any].from, any_edges[*of.any].to, 0);
    if (of.whole) of.whole = network_.edge(whole_edges[*of.whole].from, whole_edges[*of.whole].to, 0);
  }
}

PackedCut PackedCuts::counted(const std::vector<bool>& source_side, double memory_price, double error_price) const {
  PackedCut cut{.memory_price = memory_price, .error_price = error_price};
  cut.runs.resize(model_.ops.size(), false);
  cut.again.resize(model_.ops.size(), false);
  cut.kept.resize(model_.values.size(), false);
  cut.ways.resize(model_.values.size(), 0);
  const std::vector<Side>& side = instant_.side;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) {
    cut.runs[o] = node_of_[o] != no_op_node && source_side[node_of_[o]];
    if (!cut.runs[o]) continue;
    if (side[o] == Side::before) {
      cut.again[o] = true;
      cut.extra += model_.ops[o].again;
    } else if (side[o] == Side::beside) {
      cut.weight += out() * model_.ops[o].first.value;
    }
  }
  for (const OfValue& of : of_values_) {
    const SnapshotValue& value = model_.values[of.value];
    if (value.maker && cut.runs[*value.maker]) continue;
    const auto runs = [&](std::uint32_t o) { return bool{cut.runs[o]}; };
    if (std::ranges::none_of(value.readers, runs)) continue;
    const auto runs_forward = [&](std::uint32_t o) {
      return cut.runs[o] && !is_backward(model_.problem->graph.ops[o].phase);
    };
    const bool whole = std::ranges::any_of(value.readers, runs_forward);
    cut.kept[of.value] = true;
    cut.ways[of.value] = whole ? 0 : best_way(of.value, memory_price, error_price);
    const KeptWay& way = ways_.values[of.value].ways[cut.ways[of.value]];
    cut.kept_bytes += way.bytes;
    cut.extra += way.pack + way.unpack;
    cut.square += way.square;
    cut.weight -= out() * way.pack.value;
  }
  cut.weight += static_cast<double>(cut.kept_bytes.count);
  return cut;
}

PackedCut PackedCuts::cut(double memory_price, double error_price, bool bytes_only) {
  EXPECTS(memory_price >= 0 && error_price >= 0);
  const double most = memory_price * keep_all_;  // what a smallest cut costs
  const double scale = capacity_scale(bytes_only ? 0 : again_, most);
  for (const OfOp& of : of_ops_) {
    const double seconds = bytes_only ? 0 : of.seconds;
    network_.set_capacity(of.edge, whole_capacity(scale * (seconds + memory_price * of.bytes)));
  }
  for (const OfValue& of : of_values_) {
    const std::vector<KeptWay>& ways = ways_.values[of.value].ways;
    const double whole = cost(ways.front(), memory_price, error_price, bytes_only);
    double least = whole;
    for (const KeptWay& way : ways) least = std::min(least, cost(way, memory_price, error_price, bytes_only));
    network_.set_capacity(*of.any, whole_capacity(scale * least));
    if (of.whole) network_.set_capacity(*of.whole, whole_capacity(scale * (whole - least)));
  }
  const FlowGraph::Cut smallest = network_.cut(source_node, sink_node);
  PackedCut result = counted(smallest.source_side, memory_price, error_price);
  result.value = smallest.flow / scale * (1 - flow_rounding);
  return result;
}

double PackedCuts::dearest() const {
  return out() > 0 ? 1 / out() : dear * model_.base.value / std::max(1.0, keep_all_);
}

std::size_t PackedCuts::at(double memory_price, double error_price) {
  const double dearest_error = dear * model_.base.value / least_square;
  cuts_.push_back(cut(limited_price(memory_price, dearest()), limited_price(error_price, dearest_error), false));
  return cuts_.size() - 1;
}

Seconds PackedCuts::known(Bytes budget, double square) const {
  Seconds extra;
  for (const PackedCut& cut : cuts_) extra = std::max(extra, least_with(cut, room(budget), square));
  return extra;
}

PackedBound PackedCuts::bound(Bytes budget, double square) {
  PackedBound bound;
  const double room = this->room(budget);
  if (cuts_.empty()) at(0, 0);
  const auto gains = [&](const PackedCut& cut) {
    const Seconds extra = least_with(cut, room, square);
    if (extra <= bound.extra) return;
    bound.extra = extra;
    bound.memory_price = cut.memory_price;
    bound.error_price = cut.error_price;
  };
  for (const PackedCut& cut : cuts_) gains(cut);
  const double dearest_error = dear * model_.base.value / std::max(square, least_square);
  std::vector<MixedColumn> columns;
  for (const PackedCut& cut : cuts_) columns.push_back({cut.extra.value, {cut.weight, cut.square}});
  LeastMix mix;
  for (int k = 0; k < most_cuts; ++k) {
    mix = least_mix(columns, {{room, square}, dearest()});
    const double memory_price = limited_price(mix.prices[0], dearest()),
                 error_price = limited_price(mix.prices[1], dearest_error);
    const PackedCut& next = cuts_[at(memory_price, error_price)];
    gains(next);
    columns.push_back({next.extra.value, {next.weight, next.square}});
    const double cost = next.extra.value + memory_price * next.weight + error_price * next.square;
    if (cost >= mix.constant - close_cut * model_.base.value) break;
  }
  bound.mix = mix.shares;
  if (!(out() > 0) && mix.bought > 0) {
    const double price = mix.prices[0] > 0 ? limited_price(mix.prices[1], dearest_error) / mix.prices[0] : 0;
    const double least = cut(1, price, true).value - price * square;
    if (least > room)
      bound.needs = instant_.bytes + Bytes{static_cast<std::int64_t>(std::ceil(least - flow_rounding * least))};
  }
  return bound;
}

}  // namespace plimsoll
