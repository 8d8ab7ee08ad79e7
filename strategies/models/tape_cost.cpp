#include "strategies/models/tape_cost.h"

#include <algorithm>
#include <span>
#include <vector>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class TapeWalk {
 public:
  TapeWalk(const Problem& problem, const Part& part, const Tape& tape)
      : problem_(problem),
        graph_(problem.graph),
        part_(part),
        codecs_(tape.codecs),
        forms_(1 + 2 * tape.codecs.size()),
        there_(graph_.storages * forms_),
        made_(graph_.storages),
        made_here_(graph_.storages) {
    if (holds_first_op(graph_, part)) {
      for (const TensorId t : unread_parameters(graph_)) make(t);
    }
    for (const OpId op : part.ops) {
      for (const TensorId t : graph_[op].inputs) {
        if (graph_[t].kind == TensorKind::parameter) make(t);
      }
      for (const TensorId t : graph_[op].outputs) {
        if (graph_[t].kind != TensorKind::parameter_gradient) continue;
        made_here_[graph_[t].storage.index] = true;
        if (problem.gradients == Gradients::existing) make(t);
      }
    }
    for (const Op& op : graph_.ops) {
      for (const TensorId t : op.outputs) {
        if (op.phase != Phase::update) made_[graph_[t].storage.index] = true;
      }
      if (op.phase != Phase::update) continue;
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind == TensorKind::optimizer_state && updated_here(op)) make(t);
      }
    }
    peak_ = live_;
    gradients_exist_ = problem.gradients == Gradients::existing;
  }

  void run(const Tape& tape) {
    backprop_ = tape.backprop;
    piece_ = PieceName::forward;
    for (const Action& action : tape.actions) {
      switch (action.kind) {
        case ActionKind::run:
          if (action.at == place::device) compute(action);
          break;
        case ActionKind::copy:
        case ActionKind::move:
          if (action.to == place::device) arrive(action.tensor, action.form, action.chunk);
          break;
        case ActionKind::receive:
          arrive(action.tensor, {}, {});
          break;
        case ActionKind::drop:
          if (action.at == place::device) drop(action.tensor, action.form, action.chunk);
          break;
        case ActionKind::cut:
          note_kept(action.next);
          break;
        case ActionKind::pack:
        case ActionKind::unpack:
          convert(action);
          break;
        case ActionKind::send:
        case ActionKind::wait:
          break;
      }
    }
    gradients_exist_ = true;
    is_first_ = false;
  }

  /// Where updates run on the device, once the tape has ended.
  Bytes at_updates() const {
    Bytes workspace;
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::update && updated_here(op)) workspace = std::max(workspace, op.workspace);
    }
    return workspace > Bytes{0} ? live_ + workspace : Bytes{0};
  }

  Bytes peak() const { return peak_; }
  Bytes kept() const { return kept_; }
  Bytes kept_for_weights() const { return kept_for_weights_; }
  Seconds time() const { return time_; }

 private:
  /// Views are never run.
  static bool holds_first_op(const Graph& graph, const Part& part) {
    const auto first = std::ranges::find(graph.ops, false, &Op::is_view);
    const OpId id = id_at<OpId>(static_cast<std::size_t>(first - graph.ops.begin()));
    return std::ranges::find(part.ops, id) != part.ops.end();
  }

  /// Where its gradient is made, or summed with those of other ranks; of what has none, where its parameter is.
  bool updated_here(const Op& update) const {
    const auto made = [&](TensorId t, const std::vector<bool>& where) {
      return graph_[t].kind == TensorKind::parameter_gradient && where[graph_[t].storage.index];
    };
    if (std::ranges::any_of(update.inputs, [&](TensorId t) { return made(t, made_here_); })) return true;
    if (std::ranges::any_of(update.inputs, [&](TensorId t) { return made(t, made_); })) return false;
    return std::ranges::any_of(
        update.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter && there(t).is_whole; });
  }

  /// What of a storage is on the device.
  struct There {
    bool is_whole = false;
    Bytes bytes;
  };

  There& there(TensorId t, Form form = {}) {
    const std::size_t plain = graph_[t].storage.index * forms_;
    if (form.kind == Form::Kind::plain) return there_[plain];
    return there_[plain + 1 + 2 * form.codec + (form.kind == Form::Kind::packed ? 0 : 1)];
  }
  const There& there(TensorId t) const { return there_[graph_[t].storage.index * forms_]; }

  Bytes bytes_of(TensorId t, Form form) const {
    return form.kind == Form::Kind::packed ? packed_bytes(codecs_[form.codec], graph_, graph_[t]) : graph_[t].bytes;
  }

  Bytes bytes_of(TensorId t, Form form, Chunk chunk) const {
    const ChunkRange range = range_of(graph_[t].bytes, chunk);
    if (form.kind != Form::Kind::packed) return range.length;
    return packed_share(bytes_of(t, form), graph_[t].bytes, range.offset, range.length);
  }

  void count(TensorId t, Bytes bytes) {
    live_ += bytes;
    if (per_micro_batch(graph_[t].kind)) in_flight_ += bytes;
  }

  void make(TensorId t, Form form = {}) {
    There& is = there(t, form);
    if (is.is_whole) return;
    const Bytes all = bytes_of(t, form);
    count(t, all - is.bytes);
    is = {true, all};
  }

  void arrive(TensorId t, Form form, Chunk chunk) {
    if (chunk.count == 1) {
      make(t, form);
    } else {
      There& is = there(t, form);
      const Bytes length = bytes_of(t, form, chunk);
      count(t, length);
      is.bytes += length;
      is.is_whole = is.bytes == bytes_of(t, form);
    }
    peak_ = std::max(peak_, live_);
  }

  void drop(TensorId t, Form form, Chunk chunk) {
    There& is = there(t, form);
    const Bytes length = chunk.count == 1 ? is.bytes : bytes_of(t, form, chunk);
    EXPECTS((chunk.count > 1 || is.is_whole) && length <= is.bytes);
    count(t, -1 * length);
    is.bytes -= length;
    is.is_whole = false;
  }

  /// A pack makes the packed form of the value, an unpack what it restores of that.
  void convert(const Action& action) {
    const TensorId t = action.tensor;
    const Codec& codec = codecs_[action.form.codec];
    const bool packs = action.kind == ActionKind::pack;
    const CodecCost cost = packs ? pack_cost(codec, graph_, graph_[t]) : unpack_cost(codec, graph_, graph_[t]);
    make(t, packs ? action.form : Form{Form::Kind::restored, action.form.codec});
    peak_ = std::max(peak_, live_ + cost.workspace);
    const Device& device = problem_.platform[part_.device];
    if (is_first_)
      time_ += packs ? pack_time(codec, graph_, graph_[t], device) : unpack_time(codec, graph_, graph_[t], device);
  }

  bool is_there(TensorId t) const {
    const auto forms = std::span(there_).subspan(graph_[t].storage.index * forms_, forms_);
    return std::ranges::any_of(forms, &There::is_whole);
  }

  void note_kept(PieceName next) {
    if (next == PieceName::weights) kept_for_weights_ = in_flight_;
    if (piece_ == PieceName::forward) kept_ = in_flight_;
    piece_ = next;
  }

  void compute(const Action& action) {
    const Op& op = graph_[action.op];
    const Saving saving = action.saving;
    bool loads = false;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::input && !is_there(t)) {
        make(t);
        loads = true;
      }
      EXPECTS(is_there(t));
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        makes_gradient = true;
        new_gradient |= !there(t).is_whole;
      }
      make(t);
    }
    const bool accumulates = makes_gradient && (backprop_ == Backprop::by_stage ? !new_gradient : gradients_exist_);
    peak_ = std::max(peak_, live_ + workspace(op, saving, accumulates, action.implementation, backprop_));
    if (!is_first_) return;
    const Seconds alone =
        (loads ? duration_on : duration_again_on)(problem_, action.op, part_.device, saving, action.implementation);
    time_ += within(backprop_, op, graph_.source, problem_.platform[part_.device], alone);
  }

  const Problem& problem_;
  const Graph& graph_;
  const Part& part_;
  std::span<const Codec> codecs_;
  std::size_t forms_;                   // of a storage
  std::vector<There> there_;            // by storage and form
  std::vector<bool> made_, made_here_;  // by storage: anywhere; gradients of parameters by the part
  Bytes live_, in_flight_, peak_, kept_, kept_for_weights_;
  PieceName piece_ = PieceName::forward;
  Seconds time_;  // of the first run
  bool is_first_ = true;
  Backprop backprop_ = Backprop::by_stage;
  bool gradients_exist_ = false;  // before the backward
};

}  // namespace

TapeCost tape_cost(const Problem& problem, const Part& part, const Tape& tape) {
  TapeWalk walk(problem, part, tape);
  walk.run(tape);
  if (problem.micro_batches > 1) walk.run(tape);
  Seconds all = static_cast<double>(problem.micro_batches) * walk.time();
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (problem.graph.ops[o].phase != Phase::update) continue;
    all += duration_on(problem, id_at<OpId>(o), part.device, Saving::keep);
  }
  return {.makespan = all,
          .peak = walk.peak(),
          .kept = walk.kept(),
          .kept_for_weights = walk.kept_for_weights(),
          .at_updates = walk.at_updates()};
}

}  // namespace plimsoll
