// Form: every index names something, waits name earlier steps, nothing lives twice, and there are as many steps as
// what the header states takes at least.

#include <algorithm>

#include "sim/judge/findings.h"
#include "sim/judge/judges.h"
#include "sim/judge/packed_forms.h"
#include "sim/judge/versions.h"

namespace plimsoll {
namespace {

/// Of the file alone, before there is a walk.
class FormJudge {
 public:
  FormJudge(const Schedule& schedule, const Graph& graph, const Platform& platform, Findings& findings)
      : schedule_(schedule), graph_(graph), platform_(platform), findings_(findings) {}
  bool is_well_formed();

 private:
  void judge_buffers();
  void judge_streams();
  void judge_routes();
  void judge_collectives();
  bool judge_lists(StepId s);
  void judge_names(StepId s);
  void judge_counts();

  const Schedule& schedule_;
  const Graph& graph_;
  const Platform& platform_;
  Findings& findings_;
};

bool FormJudge::is_well_formed() {
  judge_buffers();
  if (findings_.none()) judge_codecs(schedule_, graph_, findings_);
  judge_streams();
  judge_routes();
  judge_collectives();
  judge_header_updates(schedule_, findings_);
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    if (!judge_lists(id_at<StepId>(s))) return false;
    judge_names(id_at<StepId>(s));
  }
  for (const BufferId b : schedule_.resident) {
    if (b.index < schedule_.buffers.size()) continue;
    findings_.report(Rule::malformed, std::nullopt, b,
                     "resident buffer " + std::to_string(b.index) + " does not exist");
  }
  if (findings_.none()) judge_counts();
  return findings_.none();
}

void FormJudge::judge_buffers() {
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const auto bad = [&](const std::string& what) {
      findings_.report(Rule::malformed, std::nullopt, id_at<BufferId>(b), "buffer " + std::to_string(b) + " " + what);
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

void FormJudge::judge_streams() {
  std::vector<std::uint32_t> computing(platform_.devices.size(), 0);
  std::vector<bool> is_used(schedule_.streams.size(), false);
  for (const Step& step : schedule_.steps) {
    if (step.stream.index < is_used.size()) is_used[step.stream.index] = true;
  }
  for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
    const Stream& stream = schedule_.streams[s];
    if (stream.device.index >= platform_.devices.size()) {
      findings_.report(Rule::malformed, std::nullopt, std::nullopt, "a stream names a device that does not exist");
      continue;
    }
    const auto exists = [&](MemoryId at) { return relative_name(at) || at.index < platform_.memories.size(); };
    if (!exists(stream.way.from) || !exists(stream.way.to)) {
      findings_.report(Rule::malformed, std::nullopt, std::nullopt, "a stream names a memory that does not exist");
      continue;
    }
    const Device& device = platform_[stream.device];
    if (stream.way != way::compute || !is_used[s]) continue;
    if (++computing[stream.device.index] == device.compute_streams + 1) {
      findings_.report(Rule::malformed, std::nullopt, std::nullopt,
                       "'" + device.name + "' computes on more streams than it has (" +
                           std::to_string(device.compute_streams) + ")");
    }
  }
}

void FormJudge::judge_routes() {
  for (const Endpoints& ends : schedule_.routes) {
    if (ends.from.index < platform_.memories.size() && ends.to.index < platform_.memories.size() &&
        ends.from != ends.to) {
      continue;
    }
    findings_.report(Rule::malformed, std::nullopt, std::nullopt, "a route is not between two memories that exist");
  }
}

void FormJudge::judge_collectives() {
  for (std::size_t c = 0; c < schedule_.collectives.size(); ++c) {
    const Collective& collective = schedule_.collectives[c];
    const auto bad = [&](const std::string& what) {
      findings_.report(Rule::malformed, std::nullopt, std::nullopt, "collective " + std::to_string(c) + " " + what);
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
bool FormJudge::judge_lists(StepId s) {
  const Step& step = schedule_[s];
  const auto inside = [](const Slice& slice, std::size_t size) {
    return std::size_t{slice.first} + slice.count <= size;
  };
  for (const Slice& slice : {step.reads, step.writes, step.allocates, step.frees}) {
    if (inside(slice, schedule_.buffer_list.size())) continue;
    findings_.report(Rule::malformed, s, "step " + std::to_string(s.index) + " names buffers beyond the list");
    return false;
  }
  if (inside(step.waits, schedule_.wait_list.size())) return true;
  findings_.report(Rule::malformed, s, "step " + std::to_string(s.index) + " names waits beyond the list");
  return false;
}

void FormJudge::judge_names(StepId s) {
  const Step& step = schedule_[s];
  const auto bad = [&](const std::string& what) {
    findings_.report(Rule::malformed, s, "step " + std::to_string(s.index) + " names " + what);
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
  if (step.micro_batch >= (is_update ? updates_of(schedule_) : schedule_.micro_batches) ||
      step.replica >= schedule_.replicas) {
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
void FormJudge::judge_counts() {
  std::uint64_t each = 0, once = 0;  // a micro-batch, an update
  for (const Op& op : graph_.ops) {
    if (!op.is_view) ++(op.phase == Phase::update ? once : each);
  }
  const std::uint64_t steps = schedule_.steps.size(), batches = schedule_.micro_batches, replicas = schedule_.replicas;
  const bool few = batches <= steps && replicas <= steps && batches * replicas <= steps;
  const bool enough_updates =
      once == 0 || (updates_of(schedule_) <= steps && updates_of(schedule_) * replicas <= steps / once);
  if (few && (each == 0 || batches * replicas <= steps / each) && enough_updates) return;
  findings_.report(Rule::incomplete, std::nullopt, std::nullopt,
                   std::to_string(batches) + " micro-batches of " + std::to_string(replicas) +
                       " replicas take more than the " + std::to_string(steps) + " steps there are, for " +
                       std::to_string(graph_.ops.size()) + " ops");
}

}  // namespace

bool is_well_formed(const Schedule& schedule, const Graph& graph, const Platform& platform, Findings& findings) {
  return FormJudge(schedule, graph, platform, findings).is_well_formed();
}

}  // namespace plimsoll
