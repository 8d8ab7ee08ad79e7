#include "sim/core/check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/core/happens_before.h"

namespace plimsoll {
namespace {

enum class Life : std::uint8_t { unborn, live, dead };

/// What one buffer holds while the schedule is walked.
struct Held {
  Life life = Life::unborn;
  std::vector<TensorId> tensors;                                            // valid now, of the buffer's storage
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> parts;  // (op, micro-batch, replica) summed here
  std::uint32_t version = 0;                                                // how often it was updated
  std::vector<StepId> makers;                                               // who filled it last
  std::vector<StepId> readers;                                              // since
  CollectiveId from = no_collective;                                        // whose result it is
};

class Judge {
 public:
  Judge(const Schedule& schedule, const Graph& graph, const Platform& platform, std::size_t limit)
      : schedule_(schedule), graph_(graph), platform_(platform), limit_(limit), held_(schedule.buffers.size()) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      for (const TensorId t : graph.ops[o].outputs) {
        if (graph[t].kind == TensorKind::parameter_gradient) makers_[t].push_back(id_at<OpId>(o));
      }
    }
  }

  std::vector<Violation> run() {
    if (!well_formed()) return std::move(found_);
    before_.emplace(schedule_);
    last_of_collective_.resize(schedule_.collectives.size());
    steps_of_collective_.resize(schedule_.collectives.size());
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const CollectiveId c = schedule_.steps[s].collective;
      if (c == no_collective) continue;
      last_of_collective_[c.index] = id_at<StepId>(s);
      steps_of_collective_[c.index].push_back(id_at<StepId>(s));
    }
    for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
      hosts_.push_back(host_memory(platform_, id_at<DeviceId>(d)));
    }
    for (const BufferId b : schedule_.resident) start_resident(b);
    for (std::size_t s = 0; s < schedule_.steps.size() && found_.size() < limit_; ++s) judge(id_at<StepId>(s));
    if (found_.size() < limit_) judge_completeness();
    return std::move(found_);
  }

 private:
  // --- words

  std::string text(StepId s) const {
    const Step& step = schedule_[s];
    std::string words = "step " + std::to_string(s.index);
    if (step.op != no_op)
      words += " ('" + graph_[step.op].name + "', micro-batch " + std::to_string(step.micro_batch) + ")";
    return words;
  }

  std::string text(BufferId b) const {
    const Buffer& buffer = schedule_[b];
    return "buffer " + std::to_string(b.index) + " ('" + graph_[buffer.tensor].name + "', micro-batch " +
           std::to_string(buffer.micro_batch) + ")";
  }

  void report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what) {
    if (found_.size() < limit_) found_.push_back({rule, step, buffer, std::move(what)});
  }

  void report(Rule rule, StepId step, BufferId buffer, const std::string& what) {
    report(rule, std::optional(step), std::optional(buffer), text(step) + " " + what + " " + text(buffer));
  }

  // --- form: every index names something, waits name earlier steps

  bool has_implementation(const Step& step) const {
    return step.op.index < graph_.ops.size() && step.implementation <= graph_[step.op].alternatives.size();
  }

  bool well_formed() {
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
          if (b.index >= schedule_.buffers.size())
            bad(s, "buffer " + std::to_string(b.index) + ", which does not exist");
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

  void start_resident(BufferId b) {
    Held& held = held_[b.index];
    const TensorKind kind = graph_[schedule_[b].tensor].kind;
    if (held.life != Life::unborn) {
      report(Rule::malformed, std::nullopt, b, text(b) + " is resident twice");
      return;
    }
    if (kind == TensorKind::activation || kind == TensorKind::gradient) {
      report(Rule::wrong_value, std::nullopt, b,
             text(b) + " is resident from the start, but its value must be computed");
    }
    held.life = Life::live;
    held.tensors = {schedule_[b].tensor};
  }

  // --- one step

  void judge(StepId s) {
    const Step& step = schedule_[s];
    const auto reads = schedule_.buffers_in(step.reads);
    const auto writes = schedule_.buffers_in(step.writes);
    for (const BufferId b : reads) judge_use(s, b, "reads");
    for (const BufferId b : writes) {
      judge_use(s, b, "writes");
      judge_after_readers(s, b);
    }
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      Held& held = held_[b.index];
      if (held.life != Life::unborn) report(Rule::malformed, s, b, "allocates again");
      held.life = Life::live;
    }
    if (step.collective != no_collective) {
      judge_collective(s);
    } else if (step.work.is_transfer()) {
      judge_copy(s);
    } else if (step.op != no_op) {
      judge_compute(s);
    } else if (step.reads.count + step.writes.count + step.allocates.count > 0) {  // else it only frees
      judge_conversion(s);
    }
    for (const BufferId b : reads) held_[b.index].readers.push_back(s);
    for (const BufferId b : schedule_.buffers_in(step.frees)) judge_free(s, b);
  }

  bool ordered(StepId earlier, StepId later) const { return earlier == later || (*before_)(earlier, later); }

  bool same_collective(StepId a, StepId b) const {
    return schedule_[a].collective != no_collective && schedule_[a].collective == schedule_[b].collective;
  }

  void judge_use(StepId s, BufferId b, const std::string& verb) {
    const Held& held = held_[b.index];
    if (held.life == Life::unborn) return report(Rule::not_resident, s, b, verb + " before its allocation");
    if (held.life == Life::dead) return report(Rule::not_resident, s, b, verb + " after its free");
    for (const StepId maker : held.makers) {
      if (same_collective(maker, s) || ordered(maker, s)) continue;
      report(Rule::not_ordered, s, b,
             verb + ", without waiting for step " + std::to_string(maker.index) + " that makes it,");
    }
    if (held.from == no_collective || schedule_[s].collective == held.from) return;
    const Collective& collective = schedule_.collectives[held.from.index];
    for (const BufferId input : collective.inputs) {
      const auto& steps = steps_of_collective_[held.from.index];
      const bool contributed = std::ranges::any_of(steps, [&](StepId c) {
        const auto read = schedule_.buffers_in(schedule_[c].reads);
        return std::ranges::find(read, input) != read.end() && (*before_)(c, s);
      });
      if (!contributed)
        report(Rule::collective, s, b, "reads, before the collective has had " + text(input) + ", its result");
    }
  }

  void judge_after_readers(StepId s, BufferId b) {
    for (const StepId reader : held_[b.index].readers) {
      if (same_collective(reader, s) || ordered(reader, s)) continue;
      report(Rule::not_ordered, s, b,
             "overwrites, without waiting for its reader step " + std::to_string(reader.index) + ",");
    }
  }

  void judge_free(StepId s, BufferId b) {
    Held& held = held_[b.index];
    if (held.life == Life::dead) return report(Rule::freed_twice, s, b, "frees again");
    if (held.life == Life::unborn) return report(Rule::freed_twice, s, b, "frees, though it was never allocated,");
    for (const auto* users : {&held.makers, &held.readers}) {
      for (const StepId user : *users) {
        if (ordered(user, s)) continue;
        report(Rule::not_ordered, s, b, "frees, without waiting for its user step " + std::to_string(user.index) + ",");
      }
    }
    held.life = Life::dead;
  }

  /// Marks a buffer as filled by a step.
  Held& fill(StepId s, BufferId b, std::vector<TensorId> tensors) {
    Held& held = held_[b.index];
    held.tensors = std::move(tensors);
    held.makers = {s};
    held.readers.clear();
    held.from = no_collective;
    return held;
  }

  // --- compute

  /// Where its stream computes; nothing for a host stream of a device that no host is connected to.
  std::optional<MemoryId> own_memory(const Step& step) const {
    const Stream& stream = schedule_[step.stream];
    return stream.kind == StreamKind::host ? hosts_[stream.device.index] : platform_[stream.device].memory;
  }

  bool belongs(const Buffer& buffer, const Step& step) const {
    return buffer.replica == step.replica &&
           (!per_micro_batch(graph_[buffer.tensor].kind) || buffer.micro_batch == step.micro_batch);
  }

  void judge_compute(StepId s) {
    const Step& step = schedule_[s];
    const Op& op = graph_[step.op];
    std::vector<BufferId> given;
    for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (schedule_[b].memory != own_memory(step)) report(Rule::wrong_place, s, b, "computes on another memory's");
        given.push_back(b);
      }
    }
    const std::size_t readable = step.reads.count + step.writes.count;
    load_input(s, op);
    for (const TensorId t : op.inputs) judge_input(s, t, given, readable);
    judge_outputs(s, op);
    const std::uint32_t times = ++ran_[{step.op.index, step.micro_batch, step.replica}];
    if (times > 1 && (op.phase == Phase::update || !op.recomputable)) {
      report(Rule::repeated, s, std::nullopt, text(s) + " repeats an op that must run once");
    }
    if (step.micro_batch >= schedule_.micro_batches || step.replica >= schedule_.replicas) {
      report(Rule::malformed, s, std::nullopt, text(s) + " is of a micro-batch or replica that does not exist");
    }
  }

  /// The network's input appears where its first reader allocates it.
  void load_input(StepId s, const Op& op) {
    for (const BufferId b : schedule_.buffers_in(schedule_[s].allocates)) {
      const TensorId t = schedule_[b].tensor;
      if (graph_[t].kind != TensorKind::input) continue;
      if (std::ranges::find(op.inputs, t) != op.inputs.end()) fill(s, b, {t});
    }
  }

  void judge_input(StepId s, TensorId t, const std::vector<BufferId>& given, std::size_t readable) {
    const Step& step = schedule_[s];
    const std::string name = "'" + graph_[t].name + "'";
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    std::optional<BufferId> wrong;
    std::string why;
    for (std::size_t g = 0; g < given.size(); ++g) {
      const BufferId b = given[g];
      const Buffer& buffer = schedule_[b];
      if (graph_[buffer.tensor].storage != graph_[t].storage) continue;
      if (g >= readable && graph_[t].kind != TensorKind::input) continue;
      const Held& held = held_[b.index];
      if (held.life != Life::live) continue;  // reported as not resident
      if (!belongs(buffer, step)) {
        wrong = b;
        why = "of another micro-batch or replica";
      } else if (std::ranges::find(held.tensors, t) == held.tensors.end()) {
        wrong = b;
        why = "which does not hold it at this point";
      } else if (held.version > 0) {
        wrong = b;
        why = "which has been updated already";
      } else {
        if (buffer.packed) report(Rule::lossy, s, b, "computes on compressed");
        if (graph_[t].kind == TensorKind::parameter_gradient) judge_contributions(s, b);
        if (step_is_update(s)) used_.insert({t, step.replica});
        ranges.emplace_back(buffer.range_offset.count, buffer.range_length.count);
      }
    }
    if (ranges.empty() && wrong) {
      return report(Rule::wrong_value, s, wrong, text(s) + " needs " + name + " but reads " + text(*wrong) + " " + why);
    }
    if (ranges.empty()) {
      return report(Rule::missing_input, s, std::nullopt, text(s) + " does not read " + name + ", which it needs");
    }
    std::ranges::sort(ranges);
    std::int64_t covered = 0;
    for (const auto& [offset, length] : ranges) {
      if (offset <= covered) covered = std::max(covered, offset + length);
    }
    if (covered < graph_[t].bytes.count) {
      report(Rule::missing_input, s, std::nullopt,
             text(s) + " reads only a part of " + name + ": bytes from " + std::to_string(covered) + " on are missing");
    }
  }

  bool step_is_update(StepId s) const { return graph_[schedule_[s].op].phase == Phase::update; }

  void judge_outputs(StepId s, const Op& op) {
    const Step& step = schedule_[s];
    const auto reads = schedule_.buffers_in(step.reads);
    const auto writes = schedule_.buffers_in(step.writes);
    const auto allocates = schedule_.buffers_in(step.allocates);
    std::vector<TensorId> made = op.outputs;
    made.insert(made.end(), op.mutates.begin(), op.mutates.end());
    for (const auto list : {writes, allocates}) {
      for (const BufferId b : list) {
        const Buffer& buffer = schedule_[b];
        const auto of_buffer = [&](TensorId t) { return graph_[t].storage == graph_[buffer.tensor].storage; };
        const bool loads = graph_[buffer.tensor].kind == TensorKind::input && !held_[b.index].makers.empty() &&
                           held_[b.index].makers.front() == s;
        if (loads) continue;
        if (std::ranges::none_of(made, of_buffer)) {
          report(Rule::wrong_output, s, b, "does not make, but fills");
          continue;
        }
        if (!belongs(buffer, step)) report(Rule::wrong_output, s, b, "fills another micro-batch's or replica's");
        fill_output(s, op, b);
      }
    }
    for (const TensorId t : op.mutates) {
      const bool written = std::ranges::any_of(
          writes, [&](BufferId b) { return graph_[schedule_[b].tensor].storage == graph_[t].storage; });
      if (!written) {
        report(Rule::wrong_output, s, std::nullopt, text(s) + " changes '" + graph_[t].name + "' without writing it");
      }
    }
    for (const TensorId t : op.outputs) {  // views: another tensor in a buffer that is only read
      for (const BufferId b : reads) {
        if (graph_[schedule_[b].tensor].storage != graph_[t].storage || !belongs(schedule_[b], step)) continue;
        std::vector<TensorId>& tensors = held_[b.index].tensors;
        if (std::ranges::find(tensors, t) == tensors.end()) tensors.push_back(t);
      }
    }
  }

  void fill_output(StepId s, const Op& op, BufferId b) {
    const Step& step = schedule_[s];
    const Buffer& buffer = schedule_[b];
    std::vector<TensorId> tensors;
    for (const TensorId t : op.outputs) {
      if (graph_[t].storage == graph_[buffer.tensor].storage) tensors.push_back(t);
    }
    const TensorKind kind = graph_[buffer.tensor].kind;
    if (tensors.empty()) tensors = {buffer.tensor};  // an update in place
    const bool changed = kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> parts = std::move(held_[b.index].parts);
    Held& held = fill(s, b, tensors);
    if (changed && ++held.version > 1) report(Rule::repeated, s, b, "updates again");
    if (kind != TensorKind::parameter_gradient) return;
    held.parts = std::move(parts);
    if (!held.parts.insert({step.op.index, step.micro_batch, step.replica}).second) {
      report(Rule::repeated, s, b, "adds its contribution a second time to");
    }
  }

  /// Whether a parameter gradient has every contribution; reports at the step that reads it, or at the end.
  bool complete(BufferId b) const {
    const auto makers = makers_.find(schedule_[b].tensor);
    if (makers == makers_.end()) return true;
    const std::size_t expected = makers->second.size() * schedule_.micro_batches * schedule_.replicas;
    return held_[b.index].parts.size() == expected;
  }

  void judge_contributions(StepId s, BufferId b) {
    if (!complete(b)) report(Rule::incomplete, s, b, "reads, before all contributions are in it,");
  }

  // --- copies, conversions, collectives

  /// Copies and conversions: one buffer read, one filled, both of the same value.
  bool judge_pair(StepId s) {
    const Step& step = schedule_[s];
    const std::size_t filled = step.writes.count + step.allocates.count;
    if (step.reads.count != 1 || filled != 1) {
      report(Rule::malformed, s, std::nullopt, text(s) + " must read one buffer and fill one");
      return false;
    }
    const BufferId from = schedule_.buffers_in(step.reads)[0];
    const BufferId to = schedule_.buffers_in(step.allocates.count == 1 ? step.allocates : step.writes)[0];
    const Buffer& source = schedule_[from];
    const Buffer& target = schedule_[to];
    const bool same_value = graph_[source.tensor].storage == graph_[target.tensor].storage &&
                            source.micro_batch == target.micro_batch && source.replica == target.replica;
    const bool inside = target.range_offset >= source.range_offset &&
                        target.range_offset + target.range_length <= source.range_offset + source.range_length;
    if (!same_value || !inside)
      report(Rule::wrong_value, s, to, "copies " + text(from) + ", which is not the value of");
    if (source.lossy && !target.lossy) report(Rule::lossy, s, to, "fills from an approximation, without saying so,");
    const Held copied = held_[from.index];
    Held& held = fill(s, to, copied.tensors);
    held.parts = copied.parts;
    held.version = copied.version;
    return true;
  }

  void judge_copy(StepId s) {
    const Step& step = schedule_[s];
    if (!judge_pair(s)) return;
    const BufferId from = schedule_.buffers_in(step.reads)[0];
    const BufferId to = schedule_.buffers_in(step.allocates.count == 1 ? step.allocates : step.writes)[0];
    const Endpoints& ends = schedule_.routes[step.work.route.index];
    if (schedule_[from].memory != ends.from) report(Rule::wrong_place, s, from, "copies from elsewhere than");
    if (schedule_[to].memory != ends.to) report(Rule::wrong_place, s, to, "copies to elsewhere than");
    if (schedule_[from].packed != schedule_[to].packed) report(Rule::lossy, s, to, "changes the form of");
    if (step.work.bytes < schedule_[to].bytes) report(Rule::wrong_value, s, to, "moves fewer bytes than are in");
  }

  void judge_conversion(StepId s) {
    if (!judge_pair(s)) return;
    const Step& step = schedule_[s];
    for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (schedule_[b].memory != own_memory(step)) report(Rule::wrong_place, s, b, "computes on another memory's");
      }
    }
  }

  void judge_collective(StepId s) {
    const CollectiveId id = schedule_[s].collective;
    if (last_of_collective_[id.index] != s) return;
    const Collective& collective = schedule_.collectives[id.index];
    Held sum;
    for (const BufferId b : collective.inputs) {
      const Held& input = held_[b.index];
      sum.tensors = input.tensors;
      for (const auto& part : input.parts) {
        if (!sum.parts.insert(part).second) report(Rule::repeated, s, b, "sums a contribution twice, from");
      }
    }
    for (const BufferId b : collective.outputs) {
      std::vector<StepId> makers;
      for (const StepId c : steps_of_collective_[id.index]) {
        for (const Slice& slice : {schedule_[c].writes, schedule_[c].allocates}) {
          const auto list = schedule_.buffers_in(slice);
          if (std::ranges::find(list, b) != list.end()) makers.push_back(c);
        }
      }
      if (makers.empty()) report(Rule::collective, s, b, "ends a collective in which nobody fills");
      Held& held = fill(s, b, sum.tensors);
      held.makers = makers;
      held.parts = sum.parts;
      held.from = id;
    }
  }

  // --- the whole

  void judge_completeness() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      const std::uint32_t micro_batches = op.phase == Phase::update ? 1 : schedule_.micro_batches;
      for (std::uint32_t m = 0; m < micro_batches; ++m) {
        for (std::uint32_t r = 0; r < schedule_.replicas; ++r) {
          if (ran_.contains({static_cast<std::uint32_t>(o), m, r})) continue;
          report(Rule::incomplete, std::nullopt, std::nullopt,
                 "'" + op.name + "' never runs for micro-batch " + std::to_string(m));
        }
      }
    }
    std::map<std::pair<TensorId, std::uint32_t>, bool> done;
    for (const auto& [tensor, makers] : makers_) {
      for (std::uint32_t r = 0; r < schedule_.replicas; ++r) done[{tensor, r}] = false;
    }
    for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const auto id = id_at<BufferId>(b);
      const auto place = done.find({schedule_[id].tensor, schedule_[id].replica});
      if (place != done.end() && held_[b].life == Life::live && complete(id)) place->second = true;
    }
    for (const auto& [gradient, is_done] : done) {
      if (is_done || used_.contains(gradient)) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "'" + graph_[gradient.first].name + "' does not end with all contributions of replica " +
                 std::to_string(gradient.second));
    }
    judge_next_iteration();
  }

  /// What was there at the start must be there at the end, updated: the next iteration begins with it.
  void judge_next_iteration() {
    std::set<TensorId> updated;
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::update) updated.insert(op.mutates.begin(), op.mutates.end());
    }
    for (const BufferId b : schedule_.resident) {
      const TensorKind kind = graph_[schedule_[b].tensor].kind;
      if (kind != TensorKind::parameter && kind != TensorKind::optimizer_state) continue;
      if (held_[b.index].life != Life::live) {
        report(Rule::incomplete, std::nullopt, b, text(b) + " is there at the start but not at the end");
      } else if (updated.contains(schedule_[b].tensor) && held_[b.index].version == 0) {
        report(Rule::incomplete, std::nullopt, b, text(b) + " does not end with the updated value");
      }
    }
  }

  const Schedule& schedule_;
  const Graph& graph_;
  const Platform& platform_;
  std::size_t limit_;
  std::vector<Violation> found_;
  std::optional<HappensBefore> before_;
  std::vector<Held> held_;                                                                // by buffer
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> ran_;  // (op, micro-batch, replica)
  std::map<TensorId, std::vector<OpId>> makers_;                                          // of parameter gradients
  std::set<std::pair<TensorId, std::uint32_t>> used_;                                     // by an update (.., replica)
  std::vector<std::optional<StepId>> last_of_collective_;
  std::vector<std::vector<StepId>> steps_of_collective_;
  std::vector<std::optional<MemoryId>> hosts_;  // by device
};

}  // namespace

std::vector<Violation> check(const Schedule& schedule, const Graph& graph, const Platform& platform,
                             std::size_t limit) {
  return Judge(schedule, graph, platform, limit).run();
}

std::string name_of(Rule rule) {
  switch (rule) {
    case Rule::malformed:
      return "malformed";
    case Rule::wrong_place:
      return "wrong_place";
    case Rule::not_resident:
      return "not_resident";
    case Rule::missing_input:
      return "missing_input";
    case Rule::wrong_value:
      return "wrong_value";
    case Rule::not_ordered:
      return "not_ordered";
    case Rule::wrong_output:
      return "wrong_output";
    case Rule::lossy:
      return "lossy";
    case Rule::incomplete:
      return "incomplete";
    case Rule::repeated:
      return "repeated";
    case Rule::freed_twice:
      return "freed_twice";
    case Rule::collective:
      return "collective";
  }
  return "unknown";
}

}  // namespace plimsoll
