// Form: every index names something, waits name earlier steps, nothing lives twice.

#include "sim/core/judge.h"

namespace plimsoll {

bool Judge::has_implementation(const Step& step) const {
  return step.op.index < graph_.ops.size() && step.implementation <= graph_[step.op].alternatives.size();
}

bool Judge::well_formed() {
  const auto bad = [this](std::size_t s, const std::string& what) {
    report(Rule::malformed, id_at<StepId>(s), std::nullopt, "step " + std::to_string(s) + " names " + what);
  };
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const bool sized = buffer.bytes >= Bytes{0} && buffer.range_offset >= Bytes{0} && buffer.range_length >= Bytes{0};
    if (buffer.tensor.index < graph_.tensors.size() && buffer.memory.index < platform_.memories.size() && sized &&
        buffer.range_offset + buffer.range_length <= graph_[buffer.tensor].bytes) {
      continue;
    }
    report(Rule::malformed, std::nullopt, id_at<BufferId>(b),
           "buffer " + std::to_string(b) + " names a tensor, memory or range that does not exist");
  }
  for (const Stream& stream : schedule_.streams) {
    if (stream.device.index >= platform_.devices.size()) {
      report(Rule::malformed, std::nullopt, std::nullopt, "a stream names a device that does not exist");
    }
  }
  const auto listed = [](const Slice& slice, std::size_t size) {
    return std::size_t{slice.first} + slice.count <= size;
  };
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    const Step& step = schedule_.steps[s];
    if (step.stream.index >= schedule_.streams.size()) bad(s, "a stream that does not exist");
    if (step.op != no_op && step.op.index >= graph_.ops.size()) bad(s, "an op that does not exist");
    if (step.implementation > 0 && !has_implementation(step)) bad(s, "an implementation that its op does not have");
    if (step.work.is_transfer() && step.work.route.index >= schedule_.routes.size())
      bad(s, "a route that does not exist");
    if (step.collective != no_collective && step.collective.index >= schedule_.collectives.size()) {
      bad(s, "a collective that does not exist");
    }
    if (step.op != no_op && step.work.is_transfer()) bad(s, "an op and a route, but it can do one thing only");
    if (step.workspace != Bytes{0} && step.stream.index < schedule_.streams.size() &&
        schedule_[step.stream].kind == StreamKind::host) {
      bad(s, "a workspace on a host stream, which has none");
    }
    for (const Slice& slice : {step.reads, step.writes, step.allocates, step.frees}) {
      if (!listed(slice, schedule_.buffer_list.size())) {
        bad(s, "buffers beyond the list");
        return false;
      }
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (b.index >= schedule_.buffers.size()) bad(s, "buffer " + std::to_string(b.index) + ", which does not exist");
      }
    }
    if (!listed(step.waits, schedule_.wait_list.size())) {
      bad(s, "waits beyond the list");
      return false;
    }
    for (const StepId wait : schedule_.waits_of(step)) {
      if (wait.index >= s) bad(s, "a wait for step " + std::to_string(wait.index) + ", which is not earlier");
    }
  }
  for (const BufferId b : schedule_.resident) {
    if (b.index >= schedule_.buffers.size()) {
      report(Rule::malformed, std::nullopt, b, "resident buffer " + std::to_string(b.index) + " does not exist");
    }
  }
  return found_.empty();
}

void Judge::start_resident(BufferId b) {
  Held& held = held_[b.index];
  const TensorKind kind = graph_[schedule_[b].tensor].kind;
  if (held.life != Life::unborn) {
    report(Rule::malformed, std::nullopt, b, text(b) + " is resident twice");
    return;
  }
  if (kind == TensorKind::activation || kind == TensorKind::gradient) {
    report(Rule::wrong_value, std::nullopt, b, text(b) + " is resident from the start, but its value must be computed");
  }
  held.life = Life::live;
  held.tensors = {schedule_[b].tensor};
}

}  // namespace plimsoll
