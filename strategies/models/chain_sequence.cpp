#include "strategies/models/chain_sequence.h"

#include <algorithm>
#include <optional>

namespace plimsoll {

namespace {

using Kind = ChainStep::Kind;

// First pass: legality, and for each forward the last step that reads the x it makes (itself if none does).
struct Liveness {
  std::vector<std::size_t> last_reader;
  std::string violation;
};

class LivenessPass {
 public:
  explicit LivenessPass(const ChainModel& model)
      : model_{model},
        saved_(model.stages()),
        forwards_(model.stages()),
        maker_(model.stages() + 1),
        next_backward_{model.stages()} {}

  Liveness run(const ChainSequence& sequence) {
    for (std::size_t t = 0; t < sequence.size() && result_.violation.empty(); ++t) {
      result_.last_reader.push_back(t);
      const auto [kind, i] = sequence[t];
      if (i >= model_.stages()) return {.last_reader = {}, .violation = "no stage " + std::to_string(i)};
      if (kind == Kind::backward) {
        backward(t, i);
      } else {
        forward(t, i, kind);
      }
    }
    if (result_.violation.empty() && next_backward_ > 0) violate("missing backward of", next_backward_ - 1);
    return result_;
  }

 private:
  void violate(const std::string& what, std::size_t i) { result_.violation = what + " stage " + std::to_string(i); }

  bool read(std::size_t t, std::size_t x) {
    if (x == 0) return true;
    if (!maker_[x]) return false;
    result_.last_reader[*maker_[x]] = t;
    return true;
  }

  void forward(std::size_t t, std::size_t i, Kind kind) {
    if (i >= next_backward_) return violate("forward after the backward of", i);
    if (saved_[i]) return violate("forward while its output is kept, of", i);
    if (forwards_[i] > 0 && !model_.recomputable[i]) return violate("second forward of not recomputable", i);
    if (!read(t, i)) return violate("forward without its input, of", i);
    ++forwards_[i];
    saved_[i] = kind == Kind::forward_saving;
    maker_[i + 1] = t;
  }

  void backward(std::size_t t, std::size_t i) {
    if (i + 1 != next_backward_) return violate("backward out of order, of", i);
    if (!saved_[i]) return violate("backward without saved tensors, of", i);
    if (model_.keeps_input[i] && !read(t, i)) return violate("backward without the input, of", i);
    if (model_.keeps_output[i]) read(t, i + 1);
    saved_[i] = false;
    next_backward_ = i;
  }

  const ChainModel& model_;
  Liveness result_;
  std::vector<bool> saved_;
  std::vector<std::size_t> forwards_;
  std::vector<std::optional<std::size_t>> maker_;  // of x_i: the last step
  std::size_t next_backward_;                      // this minus one is due
};

}  // namespace

ChainCost evaluate(const ChainModel& model, const ChainSequence& sequence) {
  const Liveness liveness = LivenessPass(model).run(sequence);
  ChainCost cost;
  cost.violation = liveness.violation;
  if (!cost.legal()) return cost;

  std::vector<Bytes> freed_after(sequence.size());
  std::vector<bool> ran(model.stages());
  Bytes live = model.resident + model.x[0];
  cost.peak = live;
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    const auto [kind, i] = sequence[t];
    Bytes made, workspace;
    Seconds duration;
    if (kind == Kind::backward) {
      made = model.input_gradient[i] + model.new_gradients[i];
      workspace = model.backward_workspace[i];
      duration = model.backward[i];
      freed_after[t] += model.saved[i] - model.x[i + 1] + model.output_gradient(i) + (i == 0 ? model.x[0] : Bytes{0});
    } else if (kind == Kind::forward_saving) {
      made = model.saved[i];
      workspace = model.forward_workspace[i];
      duration = model.forward[i];
    } else {
      made = model.x[i + 1];
      workspace = model.nograd_workspace[i];
      duration = model.nograd[i];
    }
    if (kind != Kind::backward) {
      freed_after[liveness.last_reader[t]] += model.x[i + 1];
      if (ran[i]) cost.recompute += duration;
      ran[i] = true;
    }
    cost.time += duration;
    cost.peak = std::max(cost.peak, live + made + workspace);
    live += made - freed_after[t];
  }
  return cost;
}

ChainSequence store_all_sequence(std::size_t stages) {
  ChainSequence sequence;
  for (std::size_t i = 0; i < stages; ++i) sequence.push_back({Kind::forward_saving, i});
  for (std::size_t i = stages; i-- > 0;) sequence.push_back({Kind::backward, i});
  return sequence;
}

std::string to_string(const ChainSequence& sequence) {
  std::string line;
  for (const auto [kind, stage] : sequence) {
    if (!line.empty()) line += ' ';
    line += kind == Kind::forward ? 'F' : kind == Kind::forward_saving ? 'S' : 'B';
    line += std::to_string(stage);
  }
  return line;
}

}  // namespace plimsoll
