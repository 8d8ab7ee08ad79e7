// Compute steps: an op reads exactly the values it needs and fills exactly what it makes.

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/judge/judge.h"

namespace plimsoll {

void Judge::judge_compute(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  given_.clear();
  for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      if (schedule_[b].memory != own_memory(step))
        report(Rule::wrong_place, s, b, "computes in another memory than that of");
      given_.push_back(b);
    }
  }
  load_input(s, op);
  for (const TensorId t : op.inputs) judge_input(s, t, step.micro_batch);
  if (slices_ > 1) judge_slices(s, op);
  judge_outputs(s, op);
  judge_approximations(s, op);
  const std::uint32_t times = ++ran_[run_of(step)];
  const bool is_update = op.phase == Phase::update;  // of each copy of the parameter
  const bool repeats =
      is_update ? !updated_.insert({step.op, step.micro_batch, step.replica, own_memory(step)}).second : times > 1;
  if (repeats && (is_update || !op.recomputable)) {
    report(Rule::repeated, s, text(s) + " repeats an op that must run once");
  }
  judge_label(s, repeats);
}

std::size_t Judge::run_of(const Step& step) const {
  return first_run_[step.op.index] + std::size_t{step.micro_batch} * schedule_.replicas + step.replica;
}

void Judge::load_input(StepId s, const Op& op) {
  for (const BufferId b : schedule_.buffers_in(schedule_[s].allocates)) {
    const TensorId t = schedule_[b].tensor;
    if (graph_[t].kind != TensorKind::input) continue;
    if (std::ranges::find(op.inputs, t) == op.inputs.end()) continue;
    fill(s, b, {t});
    Bytes& loaded = loaded_[place_of(b)];
    loaded += schedule_[b].range_length;
    if (loaded > graph_[t].bytes) report(Rule::repeated, s, b, "loads the network's input a second time, into");
  }
}

void Judge::judge_input(StepId s, TensorId t, std::uint32_t micro_batch) {
  const Step& step = schedule_[s];
  const std::size_t readable = step.reads.count + step.writes.count;
  const auto name = [&] {
    const std::string of = micro_batch == step.micro_batch ? "" : " of micro-batch " + std::to_string(micro_batch);
    return "'" + graph_[t].name + "'" + of;
  };
  ranges_.clear();
  std::optional<BufferId> wrong;
  std::string_view why;
  const std::uint32_t version = needed_version(s, t);
  bool is_reported = false;
  for (std::size_t g = 0; g < given_.size(); ++g) {
    const BufferId b = given_[g];
    const Buffer& buffer = schedule_[b];
    if (graph_[buffer.tensor].storage != graph_[t].storage) continue;
    if (g >= readable && graph_[t].kind != TensorKind::input) continue;
    const Held& held = held_in(b);
    if (held.life != Life::live) continue;  // reported as not resident
    if (!belongs(buffer, step, micro_batch)) {
      if (micro_batch != step.micro_batch) continue;  // its own slice's
      wrong = b;
      why = "of another micro-batch or replica";
    } else if (std::ranges::find(held.tensors, t) == held.tensors.end()) {
      wrong = b;
      why = "which does not hold it at this point";
    } else if (held.version != version) {
      wrong = b;
      why = "which has been updated already";
      if (!schedule_.updates.are_synchronous()) {
        is_reported = true;
        report(Rule::wrong_value, s, b,
               "needs version " + std::to_string(version) + " of " + name() + " but reads version " +
                   std::to_string(held.version) + " in");
      }
    } else {
      const Does does = buffer.is_packed() ? this->does(graph_[step.op], b) : Does::with_packed;
      if (does == Does::without) report(Rule::lossy, s, b, "computes on compressed");
      if (does == Does::with_packed_beside) continue;  // others of its layers read the value
      if (graph_[t].kind == TensorKind::parameter_gradient && !complete(b)) {
        report(Rule::incomplete, s, b, "reads, before all contributions are in it,");
      }
      if (step_is_update(s)) used_.insert({t, step.replica});
      ranges_.emplace_back(buffer.range_offset.count, buffer.range_length.count);
    }
  }
  if (ranges_.empty() && is_reported) return;
  if (ranges_.empty() && wrong) {
    return report(Rule::wrong_value, s, wrong,
                  text(s) + " needs " + name() + " but reads " + text(*wrong) + " " + std::string(why));
  }
  if (ranges_.empty()) return report(Rule::missing_input, s, text(s) + " does not read " + name() + ", which it needs");
  std::ranges::sort(ranges_);
  std::int64_t covered = 0;
  for (const auto& [offset, length] : ranges_) {
    if (offset <= covered) covered = std::max(covered, offset + length);
  }
  if (covered < graph_[t].bytes.count) {
    report(Rule::missing_input, s,
           text(s) + " reads only a part of " + name() + ": bytes from " + std::to_string(covered) + " on are missing");
  }
}

bool Judge::step_is_update(StepId s) const {
  return graph_[schedule_[s].op].phase == Phase::update;
}

void Judge::judge_outputs(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  const auto writes = schedule_.buffers_in(step.writes);
  for (const auto list : {writes, schedule_.buffers_in(step.allocates)}) {
    for (const BufferId b : list) {
      const Buffer& buffer = schedule_[b];
      const auto of_buffer = [&](TensorId t) { return graph_[t].storage == graph_[buffer.tensor].storage; };
      const bool loads = graph_[buffer.tensor].kind == TensorKind::input && !held_in(b).makers.empty() &&
                         held_in(b).makers.front() == s;
      if (loads) continue;
      if (std::ranges::none_of(op.outputs, of_buffer) && std::ranges::none_of(op.mutates, of_buffer)) {
        report(Rule::wrong_output, s, b, "does not make, but fills");
        continue;
      }
      if (!belongs(buffer, step)) report(Rule::wrong_output, s, b, "fills another micro-batch's or replica's");
      if (buffer.is_packed()) report(Rule::lossy, s, b, "fills with plain values the compressed");
      fill_output(s, op, b);
    }
  }
  for (const TensorId t : op.mutates) {
    const bool is_new = !schedule_.updates.are_synchronous() && fills(step.allocates, t);  // the old version stays
    if (!is_new && !fills(step.writes, t))
      report(Rule::wrong_output, s, text(s) + " changes '" + graph_[t].name + "' without writing it");
  }
  judge_filled(s, op);
  judge_views(s, op);
}

/// Every output is filled, or is there already: a view, or what another run has made. What is only saved may be left
/// out; the op's cost is then that of a run that keeps nothing.
void Judge::judge_filled(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  for (const TensorId t : op.outputs) {
    if (graph_[t].bytes == Bytes{0} || std::ranges::find(op.saved, t) != op.saved.end()) continue;
    Bytes filled;
    for (const Slice& slice : {step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (graph_[schedule_[b].tensor].storage == graph_[t].storage) filled += schedule_[b].range_length;
      }
    }
    if (filled >= graph_[t].bytes) continue;
    if (filled == Bytes{0} && is_live(t, step)) continue;
    report(Rule::wrong_output, s, text(s) + " makes '" + graph_[t].name + "', but fills no buffer with all of it");
  }
}

/// Another tensor in a buffer that is only read.
void Judge::judge_views(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  for (const TensorId t : op.outputs) {
    for (const BufferId b : schedule_.buffers_in(step.reads)) {
      if (graph_[schedule_[b].tensor].storage != graph_[t].storage || !belongs(schedule_[b], step)) continue;
      Tensors& tensors = held_in(b).tensors;
      if (std::ranges::find(tensors, t) == tensors.end()) tensors.push_back(t);
    }
  }
}

void Judge::fill_output(StepId s, const Op& op, BufferId b) {
  const Step& step = schedule_[s];
  const Buffer& buffer = schedule_[b];
  Tensors tensors;
  for (const TensorId t : op.outputs) {
    if (graph_[t].storage == graph_[buffer.tensor].storage) tensors.push_back(t);
  }
  const TensorKind kind = graph_[buffer.tensor].kind;
  if (tensors.empty()) tensors = {buffer.tensor};                                                // an update in place
  const bool is_approximate = kind == TensorKind::parameter_gradient && held_in(b).approximate;  // a sum stays one
  Held& held = fill(s, b, std::move(tensors));
  held.approximate = is_approximate;
  if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state) note_updated(s, b);
  if (kind != TensorKind::parameter_gradient || step_is_update(s)) return;  // summed over ranks it is of the same ones
  if (!held.sums.all_have(0) && held.version != update_of(step.micro_batch)) {
    report(Rule::wrong_value, s, b, "adds to what update " + std::to_string(held.version) + " takes, in");
  }
  held.version = update_of(step.micro_batch);
  if (!held.sums.add(contribution(step, buffer.tensor))) {
    report(Rule::repeated, s, b, "adds its contribution a second time to");
  }
}

/// Which of the contributions to the gradient the step's is.
std::size_t Judge::contribution(const Step& step, TensorId gradient) const {
  const std::vector<OpId>& makers = makers_[gradient.index];
  const auto maker = std::ranges::lower_bound(makers, step.op);
  const bool is_maker = maker != makers.end() && *maker == step.op;
  const std::size_t among = is_maker ? static_cast<std::size_t>(maker - makers.begin()) : makers.size();
  return (std::size_t{step.replica} * schedule_.micro_batches + step.micro_batch) * (makers.size() + 1) + among;
}

bool Judge::complete(BufferId b) {
  const std::size_t makers = makers_[schedule_[b].tensor.index].size();
  return held_in(b).sums.all_have(makers * micro_batches_of_update() * schedule_.replicas);
}

}  // namespace plimsoll
