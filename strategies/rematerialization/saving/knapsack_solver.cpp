#include "strategies/rematerialization/saving/knapsack_solver.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace plimsoll {
namespace {

constexpr std::int64_t cells = 10'000;

/// The most value per weight first; weightless ones before all.
std::vector<std::size_t> by_density(const std::vector<KnapsackItem>& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto density = [&items](std::size_t i) {
    return items[i].weight == 0 ? std::numeric_limits<double>::infinity()
                                : items[i].value / static_cast<double>(items[i].weight);
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, density);
  return order;
}

Chosen greedy(const std::vector<KnapsackItem>& items, const std::vector<std::size_t>& order, std::int64_t capacity) {
  Chosen chosen(items.size(), false);
  for (const std::size_t i : order) {
    if (items[i].weight > capacity) continue;
    chosen[i] = true;
    capacity -= items[i].weight;
  }
  return chosen;
}

class BranchAndBound {
 public:
  BranchAndBound(const std::vector<KnapsackItem>& items, const std::vector<std::size_t>& order, std::int64_t most_nodes)
      : items_{items},
        order_{order},
        nodes_left_{most_nodes},
        best_(items.size(), false),
        taken_(items.size(), false) {}

  Chosen solve(std::int64_t capacity) {
    best_ = greedy(items_, order_, capacity);
    for (std::size_t i = 0; i < items_.size(); ++i) best_value_ += best_[i] ? items_[i].value : 0;
    branch(0, capacity, 0);
    return best_;
  }

  bool is_cut_short() const { return cut_short_; }

 private:
  // Value of the relaxation, in which one item may be taken in part.
  double bound(std::size_t from, std::int64_t capacity) const {
    double value = 0;
    for (std::size_t k = from; k < order_.size(); ++k) {
      const KnapsackItem& item = items_[order_[k]];
      if (item.weight > capacity) {
        return value + item.value * static_cast<double>(capacity) / static_cast<double>(item.weight);
      }
      value += item.value;
      capacity -= item.weight;
    }
    return value;
  }

  void branch(std::size_t k, std::int64_t capacity, double value) {
    if (value > best_value_) {
      best_value_ = value;
      best_ = taken_;
    }
    if (k == order_.size() || cut_short_) return;
    cut_short_ = --nodes_left_ < 0;
    if (cut_short_ || value + bound(k, capacity) <= best_value_) return;
    const std::size_t i = order_[k];
    if (items_[i].weight <= capacity) {
      taken_[i] = true;
      branch(k + 1, capacity - items_[i].weight, value + items_[i].value);
      taken_[i] = false;
    }
    branch(k + 1, capacity, value);
  }

  const std::vector<KnapsackItem>& items_;
  const std::vector<std::size_t>& order_;
  std::int64_t nodes_left_;
  Chosen best_, taken_;
  double best_value_ = 0;
  bool cut_short_ = false;
};

}  // namespace

std::vector<Chosen> greedy_knapsack(const std::vector<KnapsackItem>& items,
                                    const std::vector<std::int64_t>& capacities) {
  const std::vector<std::size_t> order = by_density(items);
  std::vector<Chosen> solutions;
  solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) solutions.push_back(greedy(items, order, capacity));
  return solutions;
}

std::vector<Chosen> rounded_knapsack(const std::vector<KnapsackItem>& items,
                                     const std::vector<std::int64_t>& capacities) {
  std::int64_t sum = 0;
  for (const KnapsackItem& item : items) sum += item.weight;
  const std::int64_t unit = std::max<std::int64_t>(1, (sum + cells - 1) / cells);
  const std::int64_t most = sum / unit;
  std::vector<double> best(static_cast<std::size_t>(most + 1), 0);
  std::vector<std::vector<bool>> takes(items.size(), std::vector<bool>(best.size(), false));
  const auto weight = [&](std::size_t i) { return (items[i].weight + unit - 1) / unit; };
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (std::int64_t c = most; c >= weight(i); --c) {
      const double with = best[static_cast<std::size_t>(c - weight(i))] + items[i].value;
      if (!(with > best[static_cast<std::size_t>(c)])) continue;
      best[static_cast<std::size_t>(c)] = with;
      takes[i][static_cast<std::size_t>(c)] = true;
    }
  }
  std::vector<Chosen> solutions;
  solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) {
    if (capacity >= sum) {  // rounded up they might not all fit
      solutions.emplace_back(items.size(), true);
      continue;
    }
    Chosen chosen(items.size(), false);
    std::int64_t c = capacity / unit;
    for (std::size_t i = items.size(); i-- > 0;) {
      chosen[i] = takes[i][static_cast<std::size_t>(c)];
      if (chosen[i]) c -= weight(i);
    }
    solutions.push_back(std::move(chosen));
  }
  return solutions;
}

ExactKnapsack exact_knapsack(const std::vector<KnapsackItem>& items, const std::vector<std::int64_t>& capacities,
                             std::int64_t most_nodes) {
  const std::vector<std::size_t> order = by_density(items);
  ExactKnapsack found;
  found.solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) {
    BranchAndBound search(items, order, most_nodes);
    found.solutions.push_back(search.solve(capacity));
    if (search.is_cut_short()) ++found.cut_short;
  }
  return found;
}

}  // namespace plimsoll
