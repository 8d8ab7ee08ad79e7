#include "strategies/rematerialization/rotor/rotor_conditions.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class NeedTable {
 public:
  explicit NeedTable(const ChainModel& model) : model_{model}, conditions_{model} {
    const std::size_t n = model.stages();
    choices_.resize(n * (n + 1));
    early_.resize(n * (n + 1));
    for (std::size_t l = 0; l < n; ++l) {
      for (std::size_t i = l + 1; i-- > 0;) {
        for (const Entry entry : {Entry::saved, Entry::checkpoint}) {
          const bool as_saved = entry == Entry::checkpoint && !conditions_.entries_differ(i);
          choices_[at(i, l, entry)] = as_saved ? choices_[at(i, l, Entry::saved)] : least(i, l, entry);
          early_[early_at(i, l, entry)] = need(i, l, entry);
        }
      }
    }
  }

  Bytes need(std::size_t i, std::size_t l, Entry entry) const { return choices_[at(i, l, entry)].need; }

  void append(ChainSequence& sequence, std::size_t i, std::size_t l, Entry entry) const {
    using Kind = ChainStep::Kind;
    const std::size_t j = choices_[at(i, l, entry)].j;
    if (j == i) {
      sequence.push_back({Kind::forward_saving, i});
      if (i < l) append(sequence, i + 1, l, Entry::saved);
      sequence.push_back({Kind::backward, i});
      return;
    }
    for (std::size_t k = i; k < j; ++k) sequence.push_back({Kind::forward, k});
    append(sequence, j, l, Entry::checkpoint);
    append(sequence, i, j - 1, entry);
  }

 private:
  struct Choice {
    Bytes need;
    std::size_t j;  // split before j; i stands for saving at i
  };

  static std::size_t at(std::size_t i, std::size_t l, Entry entry) {
    return l * (l + 1) + 2 * i + (entry == Entry::checkpoint ? 1 : 0);
  }

  // The same by entry, then i, then l, as the early parts of a sub-chain's splits are read.
  std::size_t early_at(std::size_t i, std::size_t l, Entry entry) const {
    const std::size_t n = model_.stages();
    return (entry == Entry::checkpoint ? n * (n + 1) / 2 : 0) + i * n - i * (i + 1) / 2 + l;
  }

  Choice least(std::size_t i, std::size_t l, Entry entry) const {
    Choice best{conditions_.all(i, l, entry), i};
    if (i == l) return best;
    best.need = std::max(best.need, conditions_.kept(i, entry) + need(i + 1, l, Entry::saved));
    Bytes run;
    for (std::size_t j = i + 1; j <= l && conditions_.recomputable(j - 1); ++j) {
      run = std::max(run, conditions_.null_step(i, j - 1));
      const Bytes split = std::max(
          {conditions_.held(l) + run, model_.x[j] + need(j, l, Entry::checkpoint), early_[early_at(i, j - 1, entry)]});
      if (split < best.need) best = {split, j};
    }
    return best;
  }

  const ChainModel& model_;
  RotorConditions conditions_;
  std::vector<Choice> choices_;  // (i, l) by l, then i, then entry
  std::vector<Bytes> early_;     // needs
};

}  // namespace

RotorConditions::RotorConditions(const ChainModel& model)
    : saved_{model.saved}, x_{model.x}, recomputable_{model.recomputable} {
  EXPECTS(model.keeps_input.front());  // x_0 is there to the end
  const std::vector<Bytes> gradients = gradients_made_after(model);
  for (std::size_t i = 0; i < model.stages(); ++i) {
    held_.push_back(model.output_gradient(i) + gradients[i]);
    forward_.push_back(model.saved[i] + model.forward_workspace[i]);
    nograd_.push_back(model.x[i + 1] + model.nograd_workspace[i]);
    checkpoint_dies_.push_back(!model.keeps_input[i]);
    input_dies_.push_back(checkpoint_dies_[i] && !model.keeps_output[i - 1]);
    const Bytes dead_output = model.keeps_output[i] ? Bytes{0} : model.x[i + 1];
    backward_.push_back(held_[i] + model.saved[i] - dead_output + model.input_gradient[i] + model.new_gradients[i] +
                        model.backward_workspace[i]);
  }
}

LeastMemory rotor_least_memory(const ChainModel& model) {
  const NeedTable table(model);
  LeastMemory result{evaluate(model, store_all_sequence(model.stages())).peak, store_all_sequence(model.stages())};
  const Bytes least = model.resident + model.x[0] + table.need(0, model.stages() - 1, Entry::saved);
  if (least >= result.budget) return result;
  result = {least, {}};
  table.append(result.sequence, 0, model.stages() - 1, Entry::saved);
  return result;
}

}  // namespace plimsoll
