#include "strategies/models/recompute_order.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

class OrderWalk {
 public:
  OrderWalk(const OpModel& model, const Evicted& evicted, const Evicted& forgotten, std::size_t turn)
      : model_(model), forgotten_(forgotten), there_(model.values.size(), false), evict_after_(model.ops.size()) {
    for (std::uint32_t v = 0; v < model.values.size(); ++v) {
      const ModelValue& value = model.values[v];
      if (!value.maker) there_[v] = true;
      if (!evicted[v] || !value.maker || *value.maker > turn || model.ops[*value.maker].once) continue;
      std::size_t last = *value.maker;
      for (const std::uint32_t reader : value.readers) {
        if (reader <= turn) last = std::max<std::size_t>(last, reader);
      }
      evict_after_[last].push_back(v);
    }
  }

  std::optional<OpSequence> run() {
    for (now_ = 0; now_ < model_.ops.size(); ++now_) {
      if (!ready(now_)) return std::nullopt;
      execute(now_);
      for (const std::uint32_t v : evict_after_[now_]) there_[v] = false;
      for (const std::uint32_t v : made_again_) there_[v] = false;
      made_again_.clear();
    }
    return std::move(sequence_);
  }

 private:
  /// An op whose inputs are being made, for a value of its own that was asked for.
  struct Waiting {
    std::size_t op = 0;
    std::uint32_t asked = 0;
    std::size_t next = 0;  ///< of its inputs
    int round = 0;
    bool made_some = false;  ///< in this round
  };

  /// Makes what the op reads and misses. Making one value may overwrite another, hence the rounds. With a stack of its
  /// own: what is missing may be as deep as the graph.
  bool ready(std::size_t op) {
    constexpr int rounds = 4;
    const std::size_t most_runs = 50 * model_.ops.size() + 1000;
    const auto missing = [&](std::uint32_t v) { return !there_[v]; };
    waiting_.assign(1, {.op = op});
    while (true) {
      Waiting& last = waiting_.back();
      const std::vector<std::uint32_t>& reads = model_.ops[last.op].reads;
      while (last.next < reads.size() && there_[reads[last.next]]) ++last.next;
      if (last.next < reads.size()) {
        const std::uint32_t v = reads[last.next++];
        last.made_some = true;
        const std::optional<std::uint32_t> maker = model_.values[v].maker;
        if (!maker || (model_.ops[*maker].once && *maker < now_) || sequence_.size() > most_runs) return false;
        waiting_.push_back({.op = *maker, .asked = v});
        continue;
      }
      if (std::exchange(last.made_some, false) && ++last.round == rounds) return false;
      last.next = 0;
      if (std::ranges::any_of(reads, missing)) continue;
      if (waiting_.size() == 1) return true;
      asked_ = last.asked;
      execute(last.op);
      waiting_.pop_back();
    }
  }

  /// Saves for the backward where the value asked for, or one that is still to be read and not evicted again, is only
  /// saved.
  void execute(std::size_t op) {
    const ModelOp& made = model_.ops[op];
    std::size_t way = 0;
    if (made.ways.size() > 1) {
      const auto in = [](const std::vector<std::uint32_t>& list, std::uint32_t v) {
        return std::ranges::find(list, v) != list.end();
      };
      const auto wanted = [&](std::uint32_t v) {
        if (in(made.ways[1].makes, v)) return false;
        if (op == now_ && in(evict_after_[op], v)) return false;
        return std::ranges::any_of(model_.values[v].readers, [&](std::uint32_t reader) { return reader >= now_; });
      };
      const bool saves =
          std::ranges::any_of(made.ways[0].makes, wanted) || (op != now_ && !in(made.ways[1].makes, asked_));
      way = saves ? 0 : 1;
    }
    for (const std::uint32_t v : made.ways[way].clears) there_[v] = false;
    for (const std::uint32_t v : made.ways[way].makes) {
      there_[v] = true;
      if (op != now_ && !forgotten_.empty() && forgotten_[v]) made_again_.push_back(v);
    }
    sequence_.push_back({made.id, made.ways[way].saving});
  }

  const OpModel& model_;
  const Evicted& forgotten_;
  std::vector<std::uint32_t> made_again_;                // values of forgotten_, for the op whose turn it is
  std::vector<bool> there_;                              // by value
  std::vector<std::vector<std::uint32_t>> evict_after_;  // by op: values
  std::vector<Waiting> waiting_;                         // of ready()
  OpSequence sequence_;
  std::size_t now_ = 0;      // the op whose turn it is
  std::uint32_t asked_ = 0;  // the value for which an op runs again
};

}  // namespace

std::size_t last_forward(const OpModel& model) {
  for (std::size_t o = model.ops.size(); o-- > 0;) {
    if (model.ops[o].forward) return o;
  }
  return 0;
}

bool can_evict(const OpModel& model, std::uint32_t value) {
  const std::optional<std::uint32_t> maker = model.values[value].maker;
  return maker && model.ops[*maker].forward && !model.ops[*maker].once;
}

std::optional<OpSequence> recompute_order(const OpModel& model, const Evicted& evicted, const Evicted& forgotten) {
  Evicted of_forwards(evicted);
  for (std::uint32_t v = 0; v < model.values.size(); ++v) of_forwards[v] = evicted[v] && can_evict(model, v);
  return OrderWalk(model, of_forwards, forgotten, last_forward(model)).run();
}

std::optional<OpSequence> recompute_order_at(const OpModel& model, const Evicted& evicted, std::size_t instant) {
  return OrderWalk(model, evicted, {}, instant).run();
}

}  // namespace plimsoll
