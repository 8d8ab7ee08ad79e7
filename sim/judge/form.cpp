// Form: every index names something, waits name earlier steps, nothing lives twice, and there are as many steps as
// what the header states takes at least.

#include <algorithm>

#include "sim/judge/judge.h"

namespace plimsoll {

bool Judge::well_formed() {
  judge_buffers();
  if (found_.empty()) judge_header_codecs();
  judge_streams();
  judge_routes();
  judge_collectives();
  judge_header_updates();
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    if (!judge_lists(id_at<StepId>(s))) return false;
    judge_names(id_at<StepId>(s));
  }
  for (const BufferId b : schedule_.resident) {
    if (b.index < schedule_.buffers.size()) continue;
    report(Rule::malformed, std::nullopt, b, "resident buffer " + std::to_string(b.index) + " does not exist");
  }
  if (found_.empty()) judge_counts();
  return found_.empty();
}

void Judge::judge_buffers() {
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const auto bad = [&](const std::string& what) {
      report(Rule::malformed, std::nullopt, id_at<BufferId>(b), "buffer " + std::to_string(b) + " " + what);
    };
    const bool sized = buffer.bytes >= Bytes{0} && buffer.range_offset >= Bytes{0} && buffer.range_length >= Bytes{0};
    if (buffer.tensor.index >= graph_.tensors.size() || buffer.memory.index >= platform_.memories.size() || !sized ||
        buffer.range_length > graph_[buffer.tensor].bytes ||
        buffer.range_offset > graph_[buffer.tensor].bytes - buffer.range_length) {
      bad("names a tensor, memory or range that does not exist");
    } else if (buffer.micro_batch >= schedule_.micro_batches || buffer.replica >= schedule_.replicas) {
      bad("is of a micro-batch or replica that does not exist");
    } else if (!buffer.is_packed() && buffer.bytes != buffer.range_length) {
      bad("takes " + std::to_string(buffer.bytes.count) + " bytes, but holds " +
          std::to_string(buffer.range_length.count) + " of its tensor, and is not packed");
    }
  }
}

void Judge::judge_streams() {
  std::vector<std::uint32_t> computing(platform_.devices.size(), 0);
  std::vector<bool> is_used(schedule_.streams.size(), false);
  for (const Step& step : schedule_.steps) {
    if (step.stream.index < is_used.size()) is_used[step.stream.index] = true;
  }
  for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
    const Stream& stream = schedule_.streams[s];
    if (stream.device.index >= platform_.devices.size()) {
      report(Rule::malformed, std::nullopt, std::nullopt, "a stream names a device that does not exist");
      continue;
    }
    const auto exists = [&](MemoryId at) { return relative_name(at) || at.index < platform_.memories.size(); };
    if (!exists(stream.way.from) || !exists(stream.way.to)) {
      report(Rule::malformed, std::nullopt, std::nullopt, "a stream names a memory that does not exist");
      continue;
    }
    const Device& device = platform_[stream.device];
    if (stream.way != way::compute || !is_used[s]) continue;
    if (++computing[stream.device.index] == device.compute_streams + 1) {
      report(Rule::malformed, std::nullopt, std::nullopt,
             "'" + device.name + "' computes on more streams than it has (" + std::to_string(device.compute_streams) +
                 ")");
    }
  }
}

void Judge::judge_routes() {
  for (const Endpoints& ends : schedule_.routes) {
    if (ends.from.index < platform_.memories.size() && ends.to.index < platform_.memories.size() &&
        ends.from != ends.to) {
      continue;
    }
    report(Rule::malformed, std::nullopt, std::nullopt, "a route is not between two memories that exist");
  }
}

void Judge::judge_collectives() {
  for (std::size_t c = 0; c < schedule_.collectives.size(); ++c) {
    const Collective& collective = schedule_.collectives[c];
    const auto bad = [&](const std::string& what) {
      report(Rule::malformed, std::nullopt, std::nullopt, "collective " + std::to_string(c) + " " + what);
    };
    const auto exists = [this](BufferId b) { return b.index < schedule_.buffers.size(); };
    const std::size_t buffers = collective.inputs.size();
    if (!std::ranges::all_of(collective.inputs, exists) || !std::ranges::all_of(collective.outputs, exists)) {
      bad("names a buffer that does not exist");
    } else if (collective.values == 0 || buffers % collective.values != 0 || collective.ranks() < 2 ||
               buffers != collective.outputs.size()) {
      bad("needs one input and one output of each value for each of at least two ranks");
    }
  }
}

/// Whether the step's lists are parts of the schedule's.
bool Judge::judge_lists(StepId s) {
  const Step& step = schedule_[s];
  const auto inside = [](const Slice& slice, std::size_t size) {
    return std::size_t{slice.first} + slice.count <= size;
  };
  for (const Slice& slice : {step.reads, step.writes, step.allocates, step.frees}) {
    if (inside(slice, schedule_.buffer_list.size())) continue;
    report(Rule::malformed, s, "step " + std::to_string(s.index) + " names buffers beyond the list");
    return false;
  }
  if (inside(step.waits, schedule_.wait_list.size())) return true;
  report(Rule::malformed, s, "step " + std::to_string(s.index) + " names waits beyond the list");
  return false;
}

void Judge::judge_names(StepId s) {
  const Step& step = schedule_[s];
  const auto bad = [&](const std::string& what) {
    report(Rule::malformed, s, "step " + std::to_string(s.index) + " names " + what);
  };
  const bool has_op = step.op != no_op, op_exists = step.op.index < graph_.ops.size();
  if (step.stream.index >= schedule_.streams.size()) bad("a stream that does not exist");
  if (has_op && !op_exists) bad("an op that does not exist");
  if (step.implementation > 0 && (!op_exists || step.implementation > graph_[step.op].alternatives.size())) {
    bad("an implementation that its op does not have");
  }
  if (step.work.is_transfer() && step.work.route.index >= schedule_.routes.size()) bad("a route that does not exist");
  if (step.collective != no_collective && step.collective.index >= schedule_.collectives.size()) {
    bad("a collective that does not exist");
  }
  if (has_op && step.work.is_transfer()) bad("an op and a route, but it can do one thing only");
  if (has_op && step.collective != no_collective) bad("an op and a collective, but it can do one thing only");
  const bool is_update = op_exists && graph_[step.op].phase == Phase::update;
  if (step.micro_batch >= (is_update ? updates() : schedule_.micro_batches) || step.replica >= schedule_.replicas) {
    bad("a micro-batch or replica that does not exist");
  }
  for (const Slice& slice : {step.reads, step.writes, step.allocates, step.frees}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      if (b.index >= schedule_.buffers.size()) bad("buffer " + std::to_string(b.index) + ", which does not exist");
    }
  }
  for (const StepId wait : schedule_.waits_of(step)) {
    if (wait >= s) bad("a wait for step " + std::to_string(wait.index) + ", which is not earlier");
  }
}

/// Every op needs a step for each micro-batch and replica. More of them than steps are refused before anything is
/// counted by them.
void Judge::judge_counts() {
  std::uint64_t each = 0, once = 0;  // a micro-batch, an update
  for (const Op& op : graph_.ops) {
    if (!op.is_view) ++(op.phase == Phase::update ? once : each);
  }
  const std::uint64_t steps = schedule_.steps.size(), batches = schedule_.micro_batches, replicas = schedule_.replicas;
  const bool few = batches <= steps && replicas <= steps && batches * replicas <= steps;
  const bool enough_updates = once == 0 || (updates() <= steps && updates() * replicas <= steps / once);
  if (few && (each == 0 || batches * replicas <= steps / each) && enough_updates) return;
  report(Rule::incomplete, std::nullopt, std::nullopt,
         std::to_string(batches) + " micro-batches of " + std::to_string(replicas) + " replicas take more than the " +
             std::to_string(steps) + " steps there are, for " + std::to_string(graph_.ops.size()) + " ops");
}

void Judge::start_resident(BufferId b) {
  Held& held = held_in(b);
  const TensorKind kind = graph_[schedule_[b].tensor].kind;
  if (held.life != Life::unborn) {
    report(Rule::malformed, std::nullopt, b, text(b) + " is resident twice");
    return;
  }
  if (kind == TensorKind::activation || kind == TensorKind::gradient) {
    report(Rule::wrong_value, std::nullopt, b, text(b) + " is resident from the start, but its value must be computed");
  }
  if (schedule_[b].is_packed()) {
    report(Rule::lossy, std::nullopt, b, text(b) + " is resident in a compressed form that no step has made");
  }
  held.life = Life::live;
  held.tensors = {schedule_[b].tensor};
  born(b);
}

/// Every parameter is somewhere when an iteration begins, in every replica, whether an op reads it or not.
void Judge::judge_parameters() {
  std::map<std::pair<StorageId, std::uint32_t>, Bytes> there;
  for (const BufferId b : schedule_.resident) {
    there[{graph_[schedule_[b].tensor].storage, schedule_[b].replica}] += schedule_[b].range_length;
  }
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && found_.size() < limit_; ++r) {
      const auto found = there.find({tensor.storage, r});
      if (found != there.end() && found->second >= tensor.bytes) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "parameter '" + tensor.name + "' is nowhere in replica " + std::to_string(r) + " at the start");
    }
  }
}

/// Whether parameter gradients are there from the start is what the header says.
void Judge::judge_header_gradients() {
  std::set<std::pair<TensorId, std::uint32_t>> there;
  for (const BufferId b : schedule_.resident) {
    const TensorId t = schedule_[b].tensor;
    if (makers_[t.index].empty()) continue;
    there.insert({t, schedule_[b].replica});
    if (schedule_.gradients == Gradients::existing) continue;
    report(Rule::malformed, std::nullopt, b, text(b) + " is resident, but the header says that gradients are new");
  }
  if (schedule_.gradients == Gradients::fresh) return;
  for (std::size_t t = 0; t < makers_.size(); ++t) {
    if (makers_[t].empty()) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && found_.size() < limit_; ++r) {
      if (there.contains({id_at<TensorId>(t), r})) continue;
      report(Rule::malformed, std::nullopt, std::nullopt,
             "'" + graph_.tensors[t].name + "' is not resident in replica " + std::to_string(r) +
                 ", but the header says that gradients exist from the start");
    }
  }
}

}  // namespace plimsoll
