#include "strategies/compression/kept_choice.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Sums of many numbers, which come and go, are as good as equal.
constexpr double sums_differ = 1e-12;

bool is_allowed(const KeptChoice& choice, const ChoiceLimits& limits) {
  return choice.weight() <= limits.weight && choice.square() <= limits.square;
}

/// Changes that belong together.
struct TradedPiece {
  std::vector<std::uint32_t> ops;  ///< run again, or no longer
  double seconds = 0;
};

/// Ops in which a choice differs from a cut, in pieces that have nothing to do with each other, longest first.
std::vector<TradedPiece> traded_pieces(const KeptChoice& choice, const SnapshotModel& model, const PackedCut& cut) {
  std::vector<std::uint32_t> root(model.ops.size());
  std::iota(root.begin(), root.end(), 0);
  const auto root_of = [&](std::uint32_t o) {
    while (root[o] != o) o = root[o] = root[root[o]];
    return o;
  };
  const auto differs = [&](std::uint32_t o) { return choice.again(o) != cut.again[o] && choice.can_run_again(o); };
  for (const SnapshotValue& value : model.values) {
    if (!value.maker || !differs(*value.maker)) continue;
    for (const std::uint32_t reader : value.readers) {
      if (differs(reader)) root[root_of(reader)] = root_of(*value.maker);
    }
  }
  std::vector<TradedPiece> pieces(model.ops.size());
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    if (!differs(o)) continue;
    TradedPiece& piece = pieces[root_of(o)];
    piece.ops.push_back(o);
    piece.seconds += model.ops[o].again.value;
  }
  std::erase_if(pieces, [](const TradedPiece& piece) { return piece.ops.empty(); });
  std::ranges::stable_sort(pieces, [](const TradedPiece& a, const TradedPiece& b) { return a.seconds > b.seconds; });
  return pieces;
}

class ChoiceSearch {
 public:
  ChoiceSearch(PackedCuts& cuts, const PackedBound& bound, const ChoiceLimits& limits)
      : cuts_(cuts), bound_(bound), limits_(limits) {}

  std::optional<KeptChoice> best() {
    std::optional<KeptChoice> best;
    const auto keep = [&](std::optional<KeptChoice> made) {
      if (made && (!best || made->seconds() < best->seconds())) best = std::move(made);
    };
    for (const auto& [cut, share] : bound_.mix) keep(from(cut));
    if (best) return best;
    if (const std::optional<std::size_t> dearer = fitting_at_higher_prices()) keep(from(*dearer));
    return best;
  }

 private:
  KeptChoice choice_of(std::size_t number) const {
    const PackedCut& cut = cuts_[number];
    KeptChoice choice(cuts_, bound_.memory_price, bound_.error_price);
    for (std::uint32_t o = 0; o < cut.again.size(); ++o) {
      if (cut.again[o] && choice.can_run_again(o)) choice.set_again(o, true);
    }
    return choice;
  }

  std::optional<std::size_t> fitting_at_higher_prices() {
    for (const double factor : {1.0001, 1.01, 1.1, 1.5, 3.0, 10.0, 100.0, 10000.0}) {
      const std::size_t cut = cuts_.at(factor * bound_.memory_price, factor * bound_.error_price);
      if (is_allowed(choice_of(cut), limits_)) return cut;
    }
    return std::nullopt;
  }

  /// Towards the other cuts, piece by piece, until it fits; then wherever that is faster.
  std::optional<KeptChoice> from(std::size_t start) {
    KeptChoice choice = choice_of(start);
    for (const auto& [cut, share] : bound_.mix) {
      if (!is_allowed(choice, limits_)) approach(choice, cuts_[cut]);
    }
    if (!is_allowed(choice, limits_)) change_ways_to_fit(choice);
    if (!is_allowed(choice, limits_)) return std::nullopt;
    for (int round = 0; round < most_rounds; ++round) {
      const double before = choice.seconds();
      for (const auto& [cut, share] : bound_.mix) improve(choice, cuts_[cut]);
      improve_ways(choice);
      if (!(choice.seconds() < before - sums_differ)) break;
    }
    return choice;
  }

  double excess(const KeptChoice& choice) const {
    const auto above = [](double is, double most) { return is > most ? (is - most) / std::max(most, 1e-30) : 0; };
    return above(choice.weight(), limits_.weight) + above(choice.square(), limits_.square);
  }

  static void turn(KeptChoice& choice, const TradedPiece& piece) {
    for (const std::uint32_t o : piece.ops) choice.set_again(o, !choice.again(o));
  }

  /// Pieces that bring it nearer to the limits.
  void approach(KeptChoice& choice, const PackedCut& cut) const {
    for (const TradedPiece& piece : traded_pieces(choice, cuts_.model(), cut)) {
      const double before = excess(choice);
      if (!(before > 0)) return;
      turn(choice, piece);
      if (!(excess(choice) < before)) turn(choice, piece);
    }
  }

  void improve(KeptChoice& choice, const PackedCut& cut) const {
    for (const TradedPiece& piece : traded_pieces(choice, cuts_.model(), cut)) {
      const double before = choice.seconds();
      turn(choice, piece);
      if (!is_allowed(choice, limits_) || !(choice.seconds() < before - sums_differ)) turn(choice, piece);
    }
  }

  struct Step {
    std::uint32_t value = 0, way = 0;
    double seconds = 0, paid = 0;  ///< what it takes more, and what it costs more at the bound's prices
  };

  /// To other ways for kept values.
  std::vector<Step> steps(const KeptChoice& choice) const {
    std::vector<Step> steps;
    for (std::uint32_t v = 0; v < cuts_.model().values.size(); ++v) {
      const std::vector<KeptWay>& ways = cuts_.ways().values[v].ways;
      if (ways.size() < 2 || !choice.can_change_way(v)) continue;
      const KeptWay& is = ways[choice.way(v)];
      for (std::uint32_t w = 0; w < ways.size(); ++w) {
        if (w == choice.way(v)) continue;
        const double seconds = (ways[w].pack + ways[w].unpack - is.pack - is.unpack).value;
        const double paid = bound_.memory_price * static_cast<double>((ways[w].bytes - is.bytes).count) +
                            bound_.error_price * (ways[w].square - is.square);
        steps.push_back({v, w, seconds, paid});
      }
    }
    return steps;
  }

  /// Those first that cost the least, at the bound's prices, for what they bring it nearer to the limits.
  void change_ways_to_fit(KeptChoice& choice) const {
    std::vector<std::pair<double, Step>> all;
    const double above = excess(choice);
    for (const Step& step : steps(choice)) {
      const std::uint32_t is = choice.way(step.value);
      choice.set_way(step.value, step.way);
      const double nearer = above - excess(choice);
      choice.set_way(step.value, is);
      if (nearer > 0) all.emplace_back((step.seconds + step.paid) / nearer, step);
    }
    std::ranges::stable_sort(all, {}, [](const auto& each) { return each.first; });
    for (const auto& [worth, step] : all) {
      const double before = excess(choice);
      if (!(before > 0)) return;
      const std::uint32_t is = choice.way(step.value);
      choice.set_way(step.value, step.way);
      if (!(excess(choice) < before)) choice.set_way(step.value, is);
    }
  }

  /// Those first that save the most for what they cost.
  void improve_ways(KeptChoice& choice) const {
    std::vector<Step> all = steps(choice);
    std::erase_if(all, [](const Step& step) { return !(step.seconds < 0); });
    std::ranges::stable_sort(all, {}, [](const Step& step) { return step.seconds + step.paid; });
    for (const Step& step : all) {
      const std::uint32_t is = choice.way(step.value);
      const double before = choice.seconds();
      choice.set_way(step.value, step.way);
      if (!is_allowed(choice, limits_) || !(choice.seconds() < before - sums_differ)) choice.set_way(step.value, is);
    }
  }

  static constexpr int most_rounds = 3;

  PackedCuts& cuts_;
  const PackedBound& bound_;
  const ChoiceLimits& limits_;
};

}  // namespace

KeptChoice::KeptChoice(const PackedCuts& cuts, double memory_price, double error_price)
    : cuts_(&cuts),
      model_(&cuts.model()),
      again_(model_->ops.size(), false),
      counts_(model_->values.size(), false),
      ways_(model_->values.size(), 0),
      readers_(model_->values.size(), 0),
      forwards_(model_->values.size(), 0) {
  const std::uint32_t instant = cuts.instant().op.index;
  const double out = model_->rules.out.value;
  for (std::uint32_t o = instant + 1; o < model_->ops.size(); ++o) {
    if (cuts.instant().side[o] == Side::beside) weight_ += out * model_->ops[o].first.value;
  }
  for (const std::uint32_t v : cuts.values()) {
    const SnapshotValue& value = model_->values[v];
    if (value.maker && *value.maker > instant) continue;
    counts_[v] = true;
    ways_[v] = cuts.best_way(v, memory_price, error_price);
    for (const std::uint32_t o : value.readers) {
      if (o <= instant) continue;
      ++readers_[v];
      if (!is_backward(model_->problem->graph.ops[o].phase)) ++forwards_[v];
    }
    count(v, 1);
  }
}

bool KeptChoice::can_run_again(std::uint32_t op) const {
  return op < cuts_->instant().op.index && !model_->ops[op].once && model_->ops[op].is_there;
}

bool KeptChoice::is_kept(std::uint32_t value) const {
  const std::optional<std::uint32_t> maker = model_->values[value].maker;
  return counts_[value] && readers_[value] > 0 && !(maker && again_[*maker]);
}

bool KeptChoice::can_change_way(std::uint32_t value) const {
  return is_kept(value) && forwards_[value] == 0;
}

void KeptChoice::count(std::uint32_t value, int sign) {
  if (!is_kept(value)) return;
  const KeptWay& way = cuts_->ways().values[value].ways[this->way(value)];
  weight_ += sign * (static_cast<double>(way.bytes.count) - model_->rules.out.value * way.pack.value);
  square_ += sign * way.square;
  seconds_ += sign * (way.pack + way.unpack).value;
}

void KeptChoice::set_again(std::uint32_t op, bool again) {
  EXPECTS(can_run_again(op));
  if (again_[op] == again) return;
  const SnapshotOp& changed = model_->ops[op];
  for (const auto* list : {&changed.reads, &changed.makes}) {
    for (const std::uint32_t v : *list) count(v, -1);
  }
  again_[op] = again;
  seconds_ += (again ? 1 : -1) * changed.again.value;
  const bool is_forward = !is_backward(model_->problem->graph.ops[op].phase);
  for (const std::uint32_t v : changed.reads) {
    readers_[v] += again ? 1 : -1;
    if (is_forward) forwards_[v] += again ? 1 : -1;
  }
  for (const auto* list : {&changed.reads, &changed.makes}) {
    for (const std::uint32_t v : *list) count(v, 1);
  }
}

void KeptChoice::set_way(std::uint32_t value, std::uint32_t way) {
  count(value, -1);
  ways_[value] = way;
  count(value, 1);
}

std::optional<KeptChoice> best_choice(PackedCuts& cuts, const PackedBound& bound, const ChoiceLimits& limits) {
  if (bound.needs) return std::nullopt;
  return ChoiceSearch(cuts, bound, limits).best();
}

}  // namespace plimsoll
