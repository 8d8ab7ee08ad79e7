#include "strategies/offloading/activations/offload_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

class OffloadTable {
 public:
  OffloadTable(const OffloadModel& model, const std::vector<OffloadStage>& stages, Bytes budget, std::uint32_t slots)
      : model_(model), stages_(stages), budget_(budget), slots_(slots), side_(slots + 1) {
    Bytes all;
    for (const OffloadStage& stage : stages) all += stage.bytes;
    slot_ = Bytes{std::max<std::int64_t>(1, (all.count + slots - 1) / slots)};
  }

  std::optional<std::vector<bool>> solve() {
    idle_.assign(size(), infinite);
    idle_[0] = 0;
    for (const OffloadStage& stage : stages_) advance(stage);
    const auto best = std::ranges::min_element(idle_);
    if (*best == infinite) return std::nullopt;
    std::vector<bool> leaves(stages_.size());
    auto state = static_cast<std::uint32_t>(best - idle_.begin());
    for (std::size_t i = stages_.size(); i-- > 0;) {
      leaves[i] = came_[i][state].leaves;
      state = came_[i][state].from;
    }
    return leaves;
  }

 private:
  struct Came {
    std::uint32_t from = 0;
    bool leaves = false;
  };
  struct Moved {
    bool possible = false;
    float idle = 0;
    std::uint32_t left = 0;  ///< slots that still wait
  };

  std::size_t size() const { return std::size_t{side_} * side_ * side_; }

  /// One direction of a stage.
  Moved move(std::uint32_t chosen, std::uint32_t waiting, std::uint32_t position, const CopyRate& rate) const {
    const Bytes waits = std::int64_t{waiting} * slot_, away = std::int64_t{chosen} * slot_;
    const Bytes wait = std::max(Bytes{}, model_.memory[position] - away + waits - budget_);
    if (wait > waits) return {};
    const Seconds idle = wait / rate.bandwidth;
    const double moved = model_.time[position].value * rate.bandwidth.value;
    const double left = static_cast<double>((waits - wait).count) - (moved > 0 ? moved : 0);
    const double slots = left > 0 ? std::ceil(left / static_cast<double>(slot_.count)) : 0;
    return {true, static_cast<float>(idle.value), static_cast<std::uint32_t>(slots)};
  }

  void advance(const OffloadStage& stage) {
    std::vector<float> next(size(), infinite);
    std::vector<Came>& came = came_.emplace_back(size());
    const auto joins = static_cast<std::uint32_t>((stage.bytes.count + slot_.count - 1) / slot_.count);
    const auto leaves = static_cast<std::uint32_t>(stage.bytes.count / slot_.count);
    std::uint32_t state = 0;
    for (std::uint32_t chosen = 0; chosen <= slots_; ++chosen) {
      std::vector<Moved> out, in;
      for (std::uint32_t waiting = 0; waiting <= slots_; ++waiting) {
        out.push_back(move(chosen, waiting, stage.forward, model_.out));
        in.push_back(move(chosen, waiting, stage.backward, model_.in));
      }
      for (std::uint32_t f = 0; f <= slots_; ++f) {
        for (std::uint32_t b = 0; b <= slots_; ++b, ++state) {
          if (idle_[state] == infinite || !out[f].possible || !in[b].possible) continue;
          const float idle = idle_[state] + out[f].idle + in[b].idle;
          const auto reach = [&](std::uint32_t c, std::uint32_t to_leave, std::uint32_t to_return, bool goes) {
            const std::uint32_t to =
                (std::min(c, slots_) * side_ + std::min(to_leave, slots_)) * side_ + std::min(to_return, slots_);
            if (idle >= next[to]) return;
            next[to] = idle;
            came[to] = {state, goes};
          };
          reach(chosen, out[f].left, in[b].left, false);
          if (leaves > 0) reach(chosen + leaves, out[f].left + joins, in[b].left + joins, true);
        }
      }
    }
    idle_ = std::move(next);
  }

  const OffloadModel& model_;
  const std::vector<OffloadStage>& stages_;
  Bytes budget_, slot_;
  std::uint32_t slots_, side_;
  std::vector<float> idle_;              // by state: chosen, waiting to leave, waiting to come back
  std::vector<std::vector<Came>> came_;  // by stage and state
};

}  // namespace

std::optional<std::vector<bool>> choose_stages(const OffloadModel& model, const std::vector<OffloadStage>& stages,
                                               Bytes budget, std::uint32_t slots) {
  return OffloadTable(model, stages, budget, slots).solve();
}

}  // namespace plimsoll
