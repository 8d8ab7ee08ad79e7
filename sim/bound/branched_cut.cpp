#include "sim/bound/branched_cut.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

using SharedCut = std::shared_ptr<const SnapshotCut>;

/// What is decided, and the trades round the budget that heed it.
struct BranchNode {
  double bound = 0;  ///< seconds
  double price = 0;
  std::vector<std::pair<std::uint32_t, bool>> decided;  ///< values that are kept, or not
  SharedCut over, within;
};

double cost_at(const SnapshotCut& cut, double price) {
  return cut.extra.value + price * cut.weight;
}

class Branching {
 public:
  Branching(SnapshotCuts& cuts, const SnapshotModel& model, Bytes budget, const BranchLimits& limits)
      : cuts_(cuts),
        model_(model),
        limits_(limits),
        room_(static_cast<double>((budget - cuts.instant().bytes).count)),
        enough_(limits.enough > Seconds{0} ? limits.enough.value : infinite) {
    for (const SnapshotOp& op : model.ops) all_again_ += op.once ? 0 : op.again.value;
  }

  BranchedBound run() {
    BranchNode root;
    add(std::move(root), nullptr);
    while (!open_.empty() && result_.nodes < limits_.nodes && is_open(open_.top()->bound)) {
      const std::shared_ptr<BranchNode> node = open_.top();
      open_.pop();
      branch(*node);
    }
    const double bound = (1 - model_tolerance) * std::min(best_, enough_);
    const bool is_proven = open_.empty() || open_.top()->bound >= bound;
    result_.is_exact = is_proven && best_ <= enough_;
    result_.extra = Seconds{std::max(0.0, is_proven ? bound : open_.top()->bound)};
    std::ranges::stable_sort(result_.found, {}, [](const SnapshotCut& cut) { return cut.extra; });
    if (result_.found.size() > limits_.found) result_.found.resize(limits_.found);
    return std::move(result_);
  }

 private:
  struct Later {
    bool operator()(const std::shared_ptr<BranchNode>& a, const std::shared_ptr<BranchNode>& b) const {
      return a->bound > b->bound;
    }
  };

  bool is_open(double bound) const { return bound < std::min(best_, enough_) * (1 - model_tolerance); }

  /// The value of most bytes that one of the two keeps.
  std::optional<std::uint32_t> disputed(const BranchNode& node) const {
    std::optional<std::uint32_t> most;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      if (node.over->kept[v] == node.within->kept[v]) continue;
      if (!most || model_.values[v].bytes > model_.values[*most].bytes) most = v;
    }
    return most;
  }

  void branch(const BranchNode& node) {
    const std::optional<std::uint32_t> value = disputed(node);
    EXPECTS(value);
    for (const bool kept : {false, true}) {
      BranchNode child{.bound = node.bound, .price = node.price, .decided = node.decided, .over = {}, .within = {}};
      child.decided.emplace_back(*value, kept);
      if (node.over->kept[*value] == kept) child.over = node.over;
      if (node.within->kept[*value] == kept) child.within = node.within;
      add(std::move(child), &node);
    }
  }

  /// Nothing where no trade heeds what is decided.
  SharedCut cut_at(BranchNode& node, double price) {
    std::optional<SnapshotCut> cut = cuts_.decided_at(price);
    if (!cut) return nullptr;
    const double bound =
        cut->value - price * room_ * (price * room_ > 0 ? 1 + product_tolerance : 1 - product_tolerance);
    if (bound > node.bound) {
      node.bound = bound;
      node.price = price;
    }
    auto shared = std::make_shared<const SnapshotCut>(*std::move(cut));
    if (shared->weight <= room_) {
      note(*shared);
      node.within = shared;
    } else {
      node.over = shared;
    }
    return shared;
  }

  void note(const SnapshotCut& cut) {
    best_ = std::min(best_, cut.extra.value);
    const auto same = [&](const SnapshotCut& other) { return other.again == cut.again; };
    if (std::ranges::any_of(result_.found, same)) return;
    if (result_.found.size() >= 4 * limits_.found) {
      std::ranges::stable_sort(result_.found, {}, [](const SnapshotCut& c) { return c.extra; });
      result_.found.resize(2 * limits_.found);
    }
    result_.found.push_back(cut);
  }

  /// Bounds it, and keeps it to be branched where that is not enough.
  void add(BranchNode node, const BranchNode* parent) {
    ++result_.nodes;
    for (const auto& [value, kept] : node.decided) cuts_.decide(value, kept);
    const bool is_left = close_in(node, parent);
    for (const auto& [value, kept] : node.decided) cuts_.decide(value, std::nullopt);
    if (is_left) open_.push(std::make_shared<BranchNode>(std::move(node)));
  }

  /// Prices from both sides until the best one is found; whether there is anything left to branch on.
  bool close_in(BranchNode& node, const BranchNode* parent) {
    if (parent != nullptr && !cut_at(node, parent->price)) return false;
    if (!node.over) {
      const SharedCut free = cut_at(node, 0);
      if (!free || free->weight <= room_) return false;  // the best of all that heed it
    }
    if (!node.within) {
      const SharedCut least = cut_at(node, all_again_ > 0 ? 2 * all_again_ : 1);  // a byte is worth more than all
      if (!least || least->weight > room_) return false;
    }
    while (is_open(node.bound) && node.within->extra > node.over->extra) {
      const SharedCut over = node.over, within = node.within;
      const double price = (within->extra - over->extra).value / (over->weight - within->weight);
      const SharedCut between = cut_at(node, price);
      if (!between) return false;
      if (cost_at(*between, price) < cost_at(*over, price) - sum_tolerance * all_again_) continue;
      node.over = over;
      node.within = within;
      break;
    }
    return is_open(node.bound) && disputed(node).has_value();
  }

  SnapshotCuts& cuts_;
  const SnapshotModel& model_;
  BranchLimits limits_;
  double room_, enough_;
  double all_again_ = 0;
  double best_ = infinite;  // extra of the best trade that fits
  BranchedBound result_;
  std::priority_queue<std::shared_ptr<BranchNode>, std::vector<std::shared_ptr<BranchNode>>, Later> open_;
};

}  // namespace

BranchedBound branched_bound(SnapshotCuts& cuts, const SnapshotModel& model, Bytes budget, const BranchLimits& limits) {
  if (cuts.instant().bytes > budget) return {.extra = Seconds{infinite}, .is_exact = false, .found = {}, .nodes = 0};
  return Branching(cuts, model, budget, limits).run();
}

}  // namespace plimsoll
