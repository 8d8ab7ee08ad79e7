#include "validate/replay_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/core/schedule.h"
#include "sim/core/slices.h"
#include "sim/model/problem.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/network.h"
#include "validate/networks/packing.h"
#include "validate/networks/step_program.h"
#include "validate/op_times.h"

namespace plimsoll {
namespace {

// Whether a schedule's graph is that of a network as it is on this machine.

std::string says(const std::string& what, Bytes theirs, Bytes ours) {
  return what + " has " + std::to_string(theirs.count) + " B in the trace and " + std::to_string(ours.count) +
         " B here";
}

/// What of a transformed graph is not in the network as it is here, or nothing. Its ops' workspaces are looked at step
/// by step.
std::string stranger(const Graph& changed, const Graph& here) {
  const bool is_sliced = sequence_slices(changed) > 1;  // then the rooms of a micro-batch's values are looked at, too

  std::map<std::string, Bytes> tensors;
  for (const Tensor& tensor : here.tensors) {
    if (!tensors.emplace(tensor.name, tensor.bytes).second) return "two tensors are called '" + tensor.name + "'";
  }
  for (const Tensor& tensor : changed.tensors) {
    if (is_sliced && per_micro_batch(tensor.kind)) continue;
    const auto found = tensors.find(tensor.name);
    if (found == tensors.end()) return "there is no '" + tensor.name + "' here";
    if (found->second != tensor.bytes) return says("'" + tensor.name + "'", tensor.bytes, found->second);
  }
  std::set<std::string> ops;
  for (const Op& op : here.ops) {
    if (!ops.insert(op.name).second) return "two ops are called '" + op.name + "'";
  }
  for (const Op& op : changed.ops) {
    if (!ops.contains(op.name)) return "there is no op '" + op.name + "' here";
  }
  return "";
}

/// What differs between the trace and the network as it is here, or nothing.
std::string difference(const Graph& trace, const Graph& here) {
  if (trace.tensors.size() != here.tensors.size() || trace.ops.size() != here.ops.size()) {
    return "the trace has other tensors and ops";
  }
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor &theirs = trace.tensors[t], &ours = here.tensors[t];
    if (theirs.name != ours.name) return "'" + ours.name + "' is called '" + theirs.name + "' in the trace";
    if (theirs.bytes != ours.bytes) return says("'" + theirs.name + "'", theirs.bytes, ours.bytes);
  }
  for (std::size_t o = 0; o < trace.ops.size(); ++o) {
    const Op &theirs = trace.ops[o], &ours = here.ops[o];
    if (theirs.name != ours.name) return "op '" + ours.name + "' is called '" + theirs.name + "' in the trace";
    for (const Saving saving : {Saving::keep, Saving::nothing}) {
      const Bytes a = workspace(theirs, saving, false), b = workspace(ours, saving, false);
      if (a != b) return says("the workspace of '" + theirs.name + "'", a, b);
    }
    const Bytes a = workspace(theirs, Saving::keep, true), b = workspace(ours, Saving::keep, true);
    if (a != b) return says("the workspace of '" + theirs.name + "' that accumulates", a, b);
  }
  return "";
}

/// How the graph of a chain has its backwards.
Backward backward_of(const ChainGraph& index) {
  return index.weight.empty() ? Backward::whole : Backward::split;
}

/// What differs, in one sentence, or nothing. The problem's graph is that of the network, or of its chain.
std::string difference_of(const Problem& problem, const Schedule& schedule, const Network& network) {
  const std::uint32_t slices = sequence_slices(problem.graph);
  if (slices > 1 && network.slices.size() != slices) return "runs whole sequences, and the schedule slices of them";
  const bool says_uses = std::ranges::any_of(problem.graph.ops, [](const Op& op) { return !op.uses.empty(); });
  Graph here = problem.index ? chain_graph(with_loss(chain_of(network)),
                                           {schedule.optimizer, schedule.parameter_groups}, backward_of(*problem.index),
                                           schedule.states, says_uses ? Inner::apart : Inner::together)
                                   .graph
                             : network.graph;
  take_updates(here, network.graph);
  return problem.transformed ? stranger(problem.graph, here) : difference(problem.graph, here);
}

struct Unsupported {
  std::string what;
};

class Planner {
 public:
  Planner(const Problem& problem, const Schedule& schedule, const Network& network, const Addresses* addresses)
      : problem_(problem), graph_(problem.graph), schedule_(schedule), network_(network), addresses_(addresses) {
    for (std::size_t o = 0; o < network_.graph.ops.size(); ++o) ops_[network_.graph.ops[o].name] = id_at<OpId>(o);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) tensors_[graph_.tensors[t].name] = id_at<TensorId>(t);
    made_.region_of.resize(schedule.buffers.size());
    keys_.resize(schedule.buffers.size());
    forms_.resize(schedule.buffers.size(), value_itself);
  }

  std::variant<ReplayPlan, ReplayFailure> planned_or_why() {
    try {
      return run();
    } catch (const Unsupported& unsupported) {
      return ReplayFailure{unsupported.what};
    }
  }

 private:
  ReplayPlan run() {
    if (addresses_ != nullptr) {
      made_.blocks.resize(problem_.platform.memories.size());
      for (const AddressBlock& block : addresses_->blocks) made_.blocks[block.memory.index] = block.size;
    }
    for (const BufferId b : schedule_.resident) allocate(b, nobody);
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      const std::uint32_t by = schedule_[step.stream].device.index;
      for (const BufferId b : schedule_.buffers_in(step.allocates)) {
        forms_[b.index] = form_of(step, b);
        allocate(b, by);
      }
      made_.steps.push_back(planned(id_at<StepId>(s)));
      if (addresses_ != nullptr) made_.steps.back().workspace_at = workspace_at(id_at<StepId>(s));
      for (const BufferId b : schedule_.buffers_in(step.frees)) --open_.at(keys_[b.index]).buffers;
    }
    return std::move(made_);
  }

  using Value = std::tuple<StorageId, std::uint32_t, std::uint32_t, MemoryId, std::uint32_t, std::uint32_t>;
  struct Key {
    Value value;
    std::optional<Bytes> at;  ///< where its block has the whole of it
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// Forms of a value that are there beside each other.
  static constexpr std::uint32_t value_itself = 0;
  static constexpr std::uint32_t packed_by(CodecId codec) { return 2 * codec.index + 1; }
  static constexpr std::uint32_t restored_by(CodecId codec) { return 2 * codec.index + 2; }
  static constexpr std::uint32_t nobody = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t sent_by(std::uint32_t device) { return nobody - 1 - device; }
  struct Open {
    RegionId region;
    std::uint32_t buffers = 0;
  };

  /// In a memory of no device, such as a host, several devices may have copies of a micro-batch's value.
  Key key(BufferId b, std::uint32_t by) const {
    const Buffer& buffer = schedule_[b];
    const bool is_version =  // of which several are alive together
        !schedule_.updates.are_synchronous() && graph_[buffer.tensor].kind == TensorKind::parameter;
    const auto is_own = [&](const Device& device) { return device.memory == buffer.memory; };
    const bool is_shared = std::ranges::none_of(problem_.platform.devices, is_own);
    const bool is_theirs = is_shared && per_micro_batch(graph_[buffer.tensor].kind);
    return {{graph_[buffer.tensor].storage, is_version ? b.index : buffer.micro_batch, buffer.replica, buffer.memory,
             is_theirs ? by : nobody, forms_[b.index]},
            place_of_whole(b)};
  }

  /// A part lies as far behind it as in its tensor.
  std::optional<Bytes> place_of_whole(BufferId b) const {
    if (addresses_ == nullptr || !addresses_->of_buffer[b.index]) return std::nullopt;
    const Bytes at = *addresses_->of_buffer[b.index] - schedule_[b].range_offset;
    if (schedule_[b].range_offset == Bytes{0}) judge_place(at, "buffer " + std::to_string(b.index));
    return at;
  }

  std::optional<Bytes> workspace_at(StepId s) const {
    const std::optional<Bytes>& at = addresses_->of_workspace[s.index];
    if (at) judge_place(*at, "the workspace of " + text(s));
    return at;
  }

  /// Kernels take what memory gives them piece by piece.
  static void judge_place(Bytes at, const std::string& what) {
    if (at.count % alignment == 0) return;
    throw Unsupported{what + " lies at byte " + std::to_string(at.count) + " of its block, not at a multiple of " +
                      std::to_string(alignment)};
  }

  /// Of a buffer that the step allocates: a copy is of the form that it is copied from, but for what a device sends of
  /// a gradient, which is added to what is there.
  std::uint32_t form_of(const Step& step, BufferId b) const {
    if (schedule_[b].is_packed()) return packed_by(schedule_[b].codec);
    if (step.reads.count == 0) return value_itself;
    const BufferId from = schedule_.buffers_in(step.reads)[0];
    if (step.kind == StepKind::unpack) return restored_by(schedule_[from].codec);
    const bool is_part_of_sum =
        step.kind == StepKind::send && graph_[schedule_[b].tensor].kind == TensorKind::parameter_gradient;
    if (is_part_of_sum) return sent_by(schedule_[step.stream].device.index);
    return step.work.is_transfer() ? forms_[from.index] : value_itself;
  }

  std::string text(StepId s) const {
    const Step& step = schedule_[s];
    return "step " + std::to_string(s.index) + (step.op == no_op ? "" : " ('" + graph_[step.op].name + "')");
  }

  /// Buffers of one storage that are alive together, by the order of issue, share a region.
  void allocate(BufferId b, std::uint32_t by) {
    const Tensor& tensor = graph_[schedule_[b].tensor];
    if (schedule_[b].is_packed()) {
      const auto refuse = [&](const std::string& what) {
        throw Unsupported{"buffer " + std::to_string(b.index) + " ('" + tensor.name + "') is packed by " +
                          text_of(schedule_.codecs[schedule_[b].codec.index]) + " " + what +
                          ", which the replay does not support"};
      };
      if (schedule_[b].range_length != tensor.bytes) refuse("in parts");
      if (!per_micro_batch(tensor.kind)) refuse("and is none of a micro-batch");
    }
    keys_[b.index] = key(b, by);
    Open& open = open_[keys_[b.index]];
    if (open.buffers++ == 0) {
      open.region = id_at<RegionId>(made_.regions.size());
      made_.regions.push_back(
          {schedule_[b].memory, schedule_[b].is_packed() ? schedule_[b].bytes : tensor.bytes, keys_[b.index].at});
    }
    made_.region_of[b.index] = open.region;
  }

  PlannedStep planned(StepId s) {
    const Step& step = schedule_[s];
    PlannedStep made;
    if (step.implementation > 0) throw Unsupported{text(s) + " asks for an alternative implementation"};
    if (step.kind == StepKind::pack || step.kind == StepKind::unpack) {
      made.conversion = conversion_of(step);
    } else if (step.work.is_transfer()) {
      const auto reads = schedule_.buffers_in(step.reads);
      const auto fills = schedule_.buffers_in(step.allocates.count > 0 ? step.allocates : step.writes);
      const auto largest = std::ranges::max_element(reads, {}, [&](BufferId b) { return schedule_[b].range_length; });
      const BufferId from = *largest, to = fills[static_cast<std::size_t>(largest - reads.begin())];
      made.copy = {made_.region_of[from.index], made_.region_of[to.index], schedule_[to].range_offset,
                   schedule_[to].bytes};
      if (step.collective != no_collective) made.copy->sum = flow_of_sum(s);
    } else if (step.op != no_op) {
      plan_compute(s, made);
    } else if (step.reads.count == 1 && step.writes.count == 1) {
      made.addition = addition_of(step);
    }
    return made;
  }

  PlannedAddition addition_of(const Step& step) const {
    const BufferId from = schedule_.buffers_in(step.reads)[0], to = schedule_.buffers_in(step.writes)[0];
    judge_sum(to);
    return {made_.region_of[from.index], made_.region_of[to.index], schedule_[to].range_offset,
            schedule_[to].range_length};
  }

  void judge_sum(BufferId b) const {
    const Tensor& tensor = graph_[schedule_[b].tensor];
    if (!is_bf16(tensor)) return;
    throw Unsupported{"'" + tensor.name + "' is bf16; the replay sums fp32 from other devices only"};
  }

  PlannedConversion conversion_of(const Step& step) const {
    const BufferId from = schedule_.buffers_in(step.reads)[0], to = schedule_.buffers_in(step.allocates)[0];
    const bool packs = step.kind == StepKind::pack;
    return {schedule_.codecs[schedule_[packs ? to : from].codec.index], schedule_[from].tensor,
            made_.region_of[from.index], made_.region_of[to.index], packs};
  }

  std::uint32_t flow_of_sum(StepId s) {
    const std::uint32_t c = schedule_[s].collective.index;
    const Collective& collective = schedule_.collectives[c];
    if (collective.kind != CollectiveKind::all_reduce || collective.inputs != collective.outputs) {
      throw Unsupported{text(s) +
                        " is of a collective other than an all-reduce in place, which the replay does not "
                        "support"};
    }
    made_.sums.resize(schedule_.collectives.size());
    PlannedSum& sum = made_.sums[c];
    if (sum.flows++ == 0) {
      for (std::size_t i = 0; i < collective.inputs.size(); ++i) {
        const BufferId b = collective.inputs[i];
        judge_sum(b);
        if (i < collective.values) sum.values.push_back({{}, schedule_[b].range_offset, schedule_[b].range_length});
        sum.values[i % collective.values].ranks.push_back(made_.region_of[b.index]);
      }
    }
    return c;
  }

  void plan_compute(StepId s, PlannedStep& made) {
    const Step& step = schedule_[s];
    const Op& op = graph_[step.op];
    const bool is_on_host = schedule_[step.stream].way.computes_elsewhere();
    if (is_on_host && op.phase != Phase::update) {
      throw Unsupported{text(s) + " computes at a host, where the replay runs updates only"};
    }
    std::map<StorageId, RegionId> regions;
    std::map<std::pair<StorageId, std::uint32_t>, RegionId> earlier;  // of slices so many before
    std::set<StorageId> filled, changed;
    std::map<Value, BufferId> touched;
    std::map<StorageId, PackedForm> packed;
    for (const Slice slice : {step.reads, step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        const Buffer& buffer = schedule_[b];
        const StorageId storage = graph_[buffer.tensor].storage;
        if (per_micro_batch(graph_[buffer.tensor].kind) && buffer.micro_batch != step.micro_batch) {
          earlier[{storage, step.micro_batch - buffer.micro_batch}] = made_.region_of[b.index];
          continue;
        }
        judge_parts(s, b, touched);
        if (buffer.is_packed()) packed[storage] = {schedule_.codecs[buffer.codec.index], made_.region_of[b.index]};
        if (!buffer.is_packed() || !regions.contains(storage)) regions[storage] = made_.region_of[b.index];
      }
    }
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      filled.insert(graph_[schedule_[b].tensor].storage);
      if (graph_[schedule_[b].tensor].kind == TensorKind::input) {
        made.loads.push_back({made_.region_of[b.index], step.micro_batch});
      }
    }
    if (op.phase == Phase::update) made.versions = new_versions(step);
    for (const BufferId b : schedule_.buffers_in(step.writes)) changed.insert(graph_[schedule_[b].tensor].storage);

    const StepProgram program = program_of(step, filled, regions);
    made.workspace = program.workspace;
    if (program.workspace > step.workspace && !is_on_host && !problem_.mesh) {
      throw Unsupported{text(s) + " has a workspace of " + std::to_string(step.workspace.count) + " B and needs " +
                        std::to_string(program.workspace.count) + " B"};
    }
    const bool is_first = ran_.insert({step.op, step.micro_batch, step.replica}).second;
    const auto address = [&](const Place& place) {
      if (!place.tensor) return Address{std::nullopt, place.offset};
      const StorageId storage = graph_[*place.tensor].storage;
      if (place.before > 0) return Address{earlier.at({storage, place.before}), place.offset};
      const auto found = regions.find(storage);
      if (found == regions.end()) {
        throw Unsupported{text(s) + " makes '" + graph_[*place.tensor].name +
                          "' while it is there already, which the replay does not support"};
      }
      return Address{found->second, place.offset};
    };
    for (const KernelCall& call : program.calls) {
      PlannedCall planned{call.op, {}, {}, call.scratch, false, {}};
      if (op.phase != Phase::update) planned.slice = slice_of(step);
      for (const Place& place : call.inputs) planned.inputs.push_back(address(place));
      for (const Place& place : call.outputs) planned.outputs.push_back(address(place));
      const Graph& kernels = network_on(planned.slice).graph;
      const Op& kernel = kernels[call.op];
      if (planned.slice) judge_rooms(s, kernels, kernel, planned);
      if (const std::optional<PackedForm> form = packed_input(s, call, packed, regions)) {
        planned.packed = form->codec;
        planned.inputs.front() = Address{form->region, Bytes{0}};
      }
      const auto leaves = [](const Place& place) { return place.tensor.has_value(); };
      if (std::ranges::any_of(call.outputs, leaves) && !std::ranges::all_of(call.outputs, leaves)) {
        throw Unsupported{text(s) + " trains a part only of what '" + kernel.name + "' makes gradients for"};
      }
      if (op.phase != Phase::update && !call.outputs.empty() && call.outputs[0].tensor) {
        const Tensor& first = graph_[*call.outputs[0].tensor];  // a kernel itself changes all but gradients' sums
        planned.accumulates = first.kind == TensorKind::parameter_gradient && changed.contains(first.storage);
      }
      if (is_first) planned.statistics = statistics_of(kernel, step);
      made.calls.push_back(std::move(planned));
    }
  }

  /// A kernel takes a value in one piece: its parts lie as they do in it. `touched` has one of each value's.
  void judge_parts(StepId s, BufferId b, std::map<Value, BufferId>& touched) const {
    const Key& key = keys_[b.index];
    const BufferId other = touched.try_emplace(key.value, b).first->second;
    if (keys_[other.index].at == key.at) return;
    throw Unsupported{text(s) + " takes '" + graph_[schedule_[b].tensor].name + "' in one piece, and buffers " +
                      std::to_string(other.index) + " and " + std::to_string(b.index) + " do not lie as its parts"};
  }

  /// Of its sequence, where the network runs in slices.
  std::optional<std::uint32_t> slice_of(const Step& step) const {
    if (network_.slices.empty()) return std::nullopt;
    return step.micro_batch % static_cast<std::uint32_t>(network_.slices.size());
  }

  const Network& network_on(std::optional<std::uint32_t> slice) const {
    return slice ? *network_.slices[*slice] : network_;
  }

  /// A slice has the bytes that a whole sequence has, divided: what kernels lay out side by side may need more.
  void judge_rooms(StepId s, const Graph& kernels, const Op& kernel, const PlannedCall& planned) const {
    const auto judge = [&](const std::vector<TensorId>& tensors, const std::vector<Address>& addresses) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!addresses[i].region) continue;
        const Bytes there = made_.regions[addresses[i].region->index].bytes;
        const Bytes needed = addresses[i].offset + kernels[tensors[i]].bytes;
        if (needed <= there) continue;
        throw Unsupported{text(s) + ": '" + kernels[tensors[i]].name + "' on a slice ends at byte " +
                          std::to_string(needed.count) + " of a buffer of " + std::to_string(there.count)};
      }
    };
    judge(kernel.inputs, planned.inputs);
    judge(kernel.outputs, planned.outputs);
  }

  /// A packed form that a step reads.
  struct PackedForm {
    Codec codec;
    RegionId region;
  };

  static bool reads_as_it_is(const Op& op, const Codec& form) {
    if (attribute_of(op, transposed_attribute)) return false;
    const std::optional<OpKind> kernel = network_kind(op.kind);
    const bool has_signs = form.kind == CodecKind::mask || (form.kind == CodecKind::quantize && form.keeps_signs);
    const bool multiplies = form.kind == CodecKind::rows || form.kind == CodecKind::projection ||
                            (form.kind == CodecKind::block_sparse && form.product > 0);
    const bool has_means = form.kind == CodecKind::pool && form.product > 0;
    return (has_signs && kernel == OpKind::relu_gradient) ||
           (has_means && kernel == OpKind::convolution_weight_gradient) ||
           (form.kind == CodecKind::step && kernel == OpKind::gelu_gradient) ||
           (multiplies && kernel == OpKind::linear_weight_gradient);
  }

  /// What of the call's inputs is packed: nothing, or the first one, by what its kernel reads as it is. Others of a
  /// stage's kernels may read the value beside it.
  std::optional<PackedForm> packed_input(StepId s, const KernelCall& call,
                                         const std::map<StorageId, PackedForm>& packed,
                                         const std::map<StorageId, RegionId>& regions) const {
    const Op& kernel = network_on(slice_of(schedule_[s])).graph[call.op];
    std::optional<PackedForm> read;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (!call.inputs[i].tensor) continue;
      const auto found = packed.find(graph_[*call.inputs[i].tensor].storage);
      if (found == packed.end()) continue;
      const auto& [codec, region] = found->second;
      if (i != 0 || !reads_as_it_is(kernel, codec)) {
        const auto there = regions.find(found->first);
        if (there != regions.end() && there->second != region) continue;
        throw Unsupported{text(s) + " reads '" + graph_[*call.inputs[i].tensor].name + "' packed by " + text_of(codec) +
                          ", which '" + kernel.kind + "' cannot"};
      }
      read = found->second;
    }
    return read;
  }

  /// Of the parameters that an update makes beside those that it reads.
  std::vector<PlannedVersion> new_versions(const Step& step) const {
    std::vector<PlannedVersion> versions;
    for (const BufferId to : schedule_.buffers_in(step.allocates)) {
      for (const BufferId from : schedule_.buffers_in(step.reads)) {
        if (graph_[schedule_[from].tensor].storage != graph_[schedule_[to].tensor].storage) continue;
        versions.push_back({made_.region_of[from.index], made_.region_of[to.index]});
      }
    }
    return versions;
  }

  StepProgram program_of(const Step& step, const std::set<StorageId>& filled,
                         const std::map<StorageId, RegionId>& regions) const {
    const Op& op = graph_[step.op];
    if (op.phase == Phase::update) return update_program(step.op);
    Variant variant = saving_of(graph_, schedule_, step) == Saving::keep ? Variant::keep : Variant::nothing;
    if (op.phase != Phase::forward) {
      const auto adds = [&](TensorId t) {
        return graph_[t].kind == TensorKind::parameter_gradient && !filled.contains(graph_[t].storage);
      };
      variant = std::ranges::any_of(op.outputs, adds) ? Variant::accumulate : Variant::fresh_gradients;
    }
    if (!problem_.index) {
      const bool is_as_here = !problem_.transformed || problem_.mesh;
      return is_as_here ? op_program(network_, step.op, variant) : program_of(op, variant);
    }
    Op made = op;
    if (op.phase == Phase::forward) {
      std::erase_if(made.outputs, [&](TensorId t) { return !regions.contains(graph_[t].storage); });
    }
    return stage_program(network_on(slice_of(step)), graph_, made, variant, backward_of(*problem_.index));
  }

  /// The network's op of the same name, on the scheduled graph's tensors.
  StepProgram program_of(const Op& op, Variant variant) const {
    StepProgram program = op_program(network_, ops_.at(op.name), variant);
    for (KernelCall& call : program.calls) {
      for (std::vector<Place>* places : {&call.inputs, &call.outputs}) {
        for (Place& place : *places) {
          const std::string& name = network_.graph[*place.tensor].name;
          const auto found = tensors_.find(name);
          if (found == tensors_.end()) {
            throw Unsupported{"op '" + op.name + "' also makes '" + name + "', which is not trained"};
          }
          place.tensor = found->second;
        }
      }
    }
    return program;
  }

  /// The network's update of the same name, on the scheduled graph's tensors.
  StepProgram update_program(OpId id) const {
    const Op& op = graph_[id];
    const auto found = problem_.mesh ? id : ops_.at(op.name);
    EXPECTS(network_.graph[found].inputs.size() == op.inputs.size());
    KernelCall call{found, {}, {}, {}};
    for (const TensorId t : op.inputs) call.inputs.push_back({t, {}});
    return {{std::move(call)}, Bytes{0}};
  }

  /// Of the step's device, where there is a copy for each.
  std::optional<RegionId> statistics_of(const Op& kernel, const Step& step) const {
    const MemoryId here = problem_.platform[schedule_[step.stream].device].memory;
    for (const auto& [name, value] : kernel.attributes) {
      if (name != statistics_attribute || kernel.phase != Phase::forward) continue;
      const TensorId wanted = tensors_.at(value);
      std::optional<RegionId> found;
      for (const BufferId b : schedule_.resident) {
        if (schedule_[b].tensor != wanted) continue;
        if (!found || schedule_[b].memory == here) found = made_.region_of[b.index];
      }
      return found;
    }
    return std::nullopt;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Schedule& schedule_;
  const Network& network_;
  const Addresses* addresses_;
  std::map<std::string, OpId> ops_;          // of the network, by name
  std::map<std::string, TensorId> tensors_;  // of the scheduled graph, by name
  std::vector<Key> keys_;                    // by buffer, once allocated
  std::vector<std::uint32_t> forms_;         // by buffer, once allocated
  std::map<Key, Open> open_;
  std::set<std::tuple<OpId, std::uint32_t, std::uint32_t>> ran_;  // (op, micro-batch, replica)
  ReplayPlan made_;
};

}  // namespace

std::vector<BufferId> left_at_end(const Schedule& schedule) {
  std::set<BufferId> left(schedule.resident.begin(), schedule.resident.end());
  for (const Step& step : schedule.steps) {
    for (const BufferId b : schedule.buffers_in(step.allocates)) left.insert(b);
  }
  for (const Step& step : schedule.steps) {
    for (const BufferId b : schedule.buffers_in(step.frees)) left.erase(b);
  }
  return {left.begin(), left.end()};
}

std::variant<ReplayPlan, ReplayFailure> replay_plan(const Problem& problem, const Schedule& schedule,
                                                    const Network& network, const Addresses* addresses) {
  if (schedule.keeps_averages) return ReplayFailure{"updates keep averages of parameters, which are not replayed"};
  if (schedule.clips_gradients) return ReplayFailure{"gradients are clipped by the norm of all, which is not replayed"};
  if (schedule.evaluation) return ReplayFailure{"an evaluation between iterations is not replayed"};
  if (problem.mesh) {
    EXPECTS(!problem.index && network.graph.ops.size() == problem.graph.ops.size());
    if (addresses != nullptr) return ReplayFailure{"ranks of a mesh do not run from one block of planned addresses"};
    return Planner(problem, schedule, network, nullptr).planned_or_why();
  }
  const std::string differs = difference_of(problem, schedule, network);
  if (!differs.empty()) return ReplayFailure{"network '" + network.graph.name + "': " + differs};
  return Planner(problem, schedule, network, addresses).planned_or_why();
}

}  // namespace plimsoll
