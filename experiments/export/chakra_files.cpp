#include "experiments/export/chakra_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>

#include "experiments/export/step_name.h"
#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"

namespace plimsoll {
namespace {

/// A message of protocol buffers, field by field.
class Message {
 public:
  Message& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3U);
    varint(value);
    return *this;
  }
  Message& real(std::uint32_t field, double value) {
    varint((field << 3U) | 1U);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian, as this machine is
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view value) {
    varint((field << 3U) | 2U);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& numbers(std::uint32_t field, const std::vector<std::uint64_t>& values) {
    if (values.empty()) return *this;
    Message packed;
    for (const std::uint64_t value : values) packed.varint(value);
    return text(field, packed.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

  /// As files have it: behind its length.
  std::string delimited() const {
    Message length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7U) bytes_ += static_cast<char>((value & 127U) | 128U);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// The numbers of the schema.
enum class NodeType : std::uint64_t { load = 2, store = 3, compute = 4, send = 5, receive = 6, collective = 7 };
constexpr std::uint32_t int64_value = 9, uint64_value = 13, bool_value = 27, string_value = 29, strings_value = 30;

class Attributes {
 public:
  Attributes& add(std::string_view name, std::uint32_t field, std::uint64_t value) {
    each_.push_back(Message().text(1, name).number(field, value));
    return *this;
  }
  Attributes& add(std::string_view name, std::string_view value) {
    each_.push_back(Message().text(1, name).text(string_value, value));
    return *this;
  }
  Attributes& add(std::string_view name, const std::vector<std::string>& values) {
    Message list;
    for (const std::string& value : values) list.text(1, value);
    each_.push_back(Message().text(1, name).text(strings_value, list.bytes()));
    return *this;
  }
  void write(Message& to, std::uint32_t field) const {
    for (const Message& one : each_) to.text(field, one.bytes());
  }

 private:
  std::vector<Message> each_;
};

/// Chakra's number of a collective; unset: it has none.
std::optional<std::uint64_t> number_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 0;
    case CollectiveKind::all_gather:
      return 2;
    case CollectiveKind::broadcast:
      return 5;
    case CollectiveKind::all_to_all:
      return 6;
    case CollectiveKind::reduce_scatter:
      return 7;
    case CollectiveKind::shift:
      return std::nullopt;
  }
  return std::nullopt;
}

std::uint64_t whole(double number) {
  return static_cast<std::uint64_t>(std::llround(std::max(0.0, number)));
}

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  NodeType type = NodeType::compute;
  Interval ran{};
  std::vector<std::uint64_t> ctrl, data;
  Attributes attributes;
};

std::string written_node(const ChakraNode& node) {
  constexpr double microseconds = 1e6, nanoseconds = 1e9;
  const double lasts = (node.ran.finish - node.ran.start).value;
  Message message;
  message.number(1, node.id).text(2, node.name).number(3, static_cast<std::uint64_t>(node.type));
  message.numbers(4, node.ctrl).numbers(5, node.data);
  message.number(6, whole(node.ran.start.value * microseconds)).number(7, whole(lasts * microseconds));
  node.attributes.write(message, 10);
  Attributes dates;
  dates.add("start_ns", int64_value, whole(node.ran.start.value * nanoseconds));
  dates.add("duration_ns", int64_value, whole(lasts * nanoseconds));
  dates.write(message, 10);
  return message.delimited();
}

/// RankGroups of ranks that exchange values, by axis of a mesh, numbered from 1.
class RankGroups {
 public:
  RankGroups(const Problem& problem, std::uint32_t ranks) : mesh_(problem.mesh), ranks_(ranks) {}

  std::uint64_t of(std::string_view axis, std::uint32_t rank) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (key(axis, r) == key(axis, rank)) members.push_back(r);
    }
    return number_.try_emplace(members, number_.size() + 1).first->second;
  }

  std::string text() const {
    Json json = Json::object();
    for (std::size_t n = 1; n <= number_.size(); ++n) {
      for (const auto& [members, number] : number_) {
        if (number == n) json[std::to_string(n)] = members;
      }
    }
    return json_text(json) + "\n";
  }

 private:
  /// Equal for ranks of one group: the stage, and where they are along all other axes.
  std::vector<std::uint32_t> key(std::string_view axis, std::uint32_t rank) const {
    if (!mesh_) return {};
    const std::vector<std::size_t> own = mesh_->axes_named(axis);
    const std::uint32_t within = rank % mesh_->ranks();
    std::vector<std::uint32_t> places{rank / mesh_->ranks()};
    for (std::size_t a = 0; a < mesh_->axes.size(); ++a) {
      if (std::ranges::find(own, a) != own.end()) continue;
      places.push_back(within / mesh_->stride(a) % mesh_->axes[a].ranks);
    }
    return places;
  }

  const std::optional<Mesh>& mesh_;
  std::uint32_t ranks_;
  std::map<std::vector<std::uint32_t>, std::uint64_t> number_;
};

/// What one device does, as each of its ranks does it.
class ChakraWriter {
 public:
  ChakraWriter(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem),
        schedule_(schedule),
        timeline_(timeline),
        ranks_(problem.mesh ? problem.mesh->ranks() : 1),
        nodes_(problem.platform.devices.size()),
        last_(schedule.streams.size()),
        received_(schedule.steps.size()),
        next_(schedule.steps.size()) {
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) add(id_at<StepId>(s));
  }

  std::vector<ChakraFile> files(std::string_view made_by) {
    std::vector<ChakraFile> made;
    RankGroups groups(problem_, static_cast<std::uint32_t>(nodes_.size()) * ranks_);
    for (std::uint32_t d = 0; d < nodes_.size(); ++d) {
      if (nodes_[d].empty()) continue;
      for (std::uint32_t r = 0; r < ranks_; ++r) {
        const std::uint32_t rank = d * ranks_ + r;
        made.push_back({fmt::format(".{}.et", rank), metadata(rank, made_by) + of_rank(d, rank, groups)});
      }
    }
    made.push_back({".groups.json", groups.text()});
    return made;
  }

 private:
  /// A node with what is the same for all ranks of the device, and what is not.
  struct OfRanks {
    ChakraNode node;
    std::optional<std::uint32_t> peer = {};  ///< a device
    std::string axis = {};                   ///< of a collective
  };

  std::string metadata(std::uint32_t rank, std::string_view made_by) const {
    Attributes attributes;
    attributes.add("schema", "1.0.2-chakra.0.0.4").add("made_by", made_by).add("trace", schedule_.trace);
    attributes.add("platform", schedule_.platform).add("strategy", schedule_.strategy);
    attributes.add("rank", uint64_value, rank);
    Message message;
    message.text(1, "0.0.4");
    attributes.write(message, 2);
    return message.delimited();
  }

  std::string of_rank(std::uint32_t device, std::uint32_t rank, RankGroups& groups) const {
    std::string text;
    for (const OfRanks& each : nodes_[device]) {
      ChakraNode node = each.node;
      if (each.peer) {
        const std::uint64_t peer = *each.peer * ranks_ + rank % ranks_, own = rank;
        const bool sends = node.type == NodeType::send;
        node.attributes.add("comm_src", uint64_value, sends ? own : peer);
        node.attributes.add("comm_dst", uint64_value, sends ? peer : own);
      }
      if (!each.axis.empty()) node.attributes.add("pg_name", std::to_string(groups.of(each.axis, rank)));
      text += written_node(node);
    }
    return text;
  }

  std::uint32_t device_of(const Step& step) const { return schedule_[step.stream].device.index; }

  /// Where a transfer brings its bytes: another device.
  std::optional<std::uint32_t> receiver(const Step& step) const {
    if (!step.work.is_transfer()) return std::nullopt;
    const std::optional<DeviceId> to = problem_.platform[schedule_.routes[step.work.route.index].to].device;
    if (!to || to->index == device_of(step)) return std::nullopt;
    return to->index;
  }

  void add(StepId id) {
    const Step& step = schedule_[id];
    const std::uint32_t device = device_of(step);
    OfRanks made{node_of(id)};
    made.peer = receiver(step);
    if (step.op != no_op) {
      if (const std::optional<OpCollective> of = collective_of(problem_.graph[step.op])) {
        made.axis = of->axis;
        collective(made.node, problem_.graph[step.op], *of);
      }
    }
    if (const std::optional<std::uint64_t>& before = last_[step.stream.index]) made.node.ctrl.push_back(*before);
    for (const StepId wait : schedule_.waits_of(step)) made.node.data.push_back(awaited(wait, device));
    last_[step.stream.index] = id.index;
    nodes_[device].push_back(made);
    if (made.peer) receive(*made.peer, made.node, device);
  }

  ChakraNode node_of(StepId id) const {
    const Step& step = schedule_[id];
    ChakraNode node{
        .id = id.index, .name = step_name(problem_.graph, schedule_, step), .ran = timeline_.steps[id.index]};
    const Way way = schedule_[step.stream].way;
    node.attributes.add("is_cpu_op", bool_value, way.computes_elsewhere() ? 1 : 0);
    node.attributes.add("op_type", written(step.kind));
    if (step.work.is_transfer()) {
      const bool sends = receiver(step).has_value();
      node.type = sends ? NodeType::send : way.is_inward() ? NodeType::load : NodeType::store;
      const auto bytes = static_cast<std::uint64_t>(step.work.bytes.count);
      if (sends) message(node, bytes, id.index);
      if (!sends) node.attributes.add("tensor_size", uint64_value, bytes);
    } else if (step.op != no_op) {
      const Op& op = problem_.graph[step.op];
      if (op.flops) node.attributes.add("num_ops", int64_value, whole(static_cast<double>(op.flops->count)));
      if (op.bytes_moved) {
        node.attributes.add("tensor_size", uint64_value, static_cast<std::uint64_t>(op.bytes_moved->count));
      }
      node.attributes.add("phase", written(op.phase)).add("op_kind", op.kind);
      node.attributes.add("workspace_bytes", uint64_value, static_cast<std::uint64_t>(step.workspace.count));
    }
    add_tensors(node, step);
    return node;
  }

  /// Lists of names and bytes in turn, as STAGE writes them, and of kinds and owners.
  void add_tensors(ChakraNode& node, const Step& step) const {
    std::vector<std::string> inputs, input_kinds, outputs, output_kinds, owners;
    const auto kind_of = [&](BufferId b) { return problem_.graph[schedule_[b].tensor].kind; };
    const auto list = [&](BufferId b, std::vector<std::string>& tensors, std::vector<std::string>& kinds) {
      tensors.push_back(name_of(schedule_[b]));
      tensors.push_back(std::to_string(schedule_[b].bytes.count));
      kinds.emplace_back(written(kind_of(b)));
    };
    const auto needs = [&](BufferId b) {
      if (std::ranges::find(inputs, name_of(schedule_[b])) == inputs.end()) list(b, inputs, input_kinds);
    };
    for (const BufferId b : schedule_.buffers_in(step.reads)) list(b, inputs, input_kinds);
    for (const BufferId b : schedule_.buffers_in(step.writes)) {
      if (kind_of(b) != TensorKind::parameter_gradient) needs(b);
    }
    for (const Slice slice : {step.allocates, step.writes}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        const bool appears = slice.first == step.allocates.first && is_given(kind_of(b));
        if (appears) needs(b);  // an input of the network
        if (appears && step.op != no_op) continue;
        list(b, outputs, output_kinds);
        const std::optional<TensorId>& owner = problem_.graph[schedule_[b].tensor].gradient_of;
        owners.push_back(owner ? problem_.graph[*owner].name : "");
      }
    }
    node.attributes.add("inputs", inputs).add("outputs", outputs);
    node.attributes.add("input_kinds", input_kinds).add("output_kinds", output_kinds).add("gradient_of", owners);
  }

  /// The tensor's, with the micro-batch and the replica after the first, and where it is not a device's.
  std::string name_of(const Buffer& buffer) const {
    std::string name = problem_.graph[buffer.tensor].name;
    if (buffer.micro_batch > 0) name += fmt::format(" of micro-batch {}", buffer.micro_batch);
    if (buffer.replica > 0) name += fmt::format(" of replica {}", buffer.replica);
    const bool is_home = std::ranges::any_of(problem_.platform.devices,
                                             [&](const auto& device) { return device.memory == buffer.memory; });
    return is_home ? name : name + " in " + problem_.platform[buffer.memory].name;
  }

  void collective(ChakraNode& node, const Op& op, const OpCollective& of) const {
    const std::optional<std::uint64_t> number = number_of(of.kind);
    if (!number) {
      throw InputError(
          fmt::format("chakra: op '{}' is a {}, for which the format has no collective", op.name, written(of.kind)));
    }
    node.type = NodeType::collective;
    node.attributes.add("comm_type", int64_value, *number);
    const auto bytes = static_cast<std::uint64_t>(exchanged_bytes(problem_.graph, op).count);
    node.attributes.add("comm_size", int64_value, bytes);
  }

  static void message(ChakraNode& node, std::uint64_t bytes, std::uint64_t tag) {
    node.attributes.add("comm_size", int64_value, bytes).add("comm_tag", uint64_value, tag);
  }

  /// The node of the receiving rank has the id of the one that sends.
  void receive(std::uint32_t device, const ChakraNode& sent, std::uint32_t sender) {
    ChakraNode node{.id = sent.id, .name = sent.name, .type = NodeType::receive, .ran = sent.ran};
    node.attributes.add("is_cpu_op", bool_value, 0);
    const Step& step = schedule_.steps[sent.id];
    message(node, static_cast<std::uint64_t>(step.work.bytes.count), sent.id);
    nodes_[device].push_back({std::move(node), sender});
    received_[sent.id] = device;
  }

  /// The id of a node of the device that stands for the end of the step.
  std::uint64_t awaited(StepId wait, std::uint32_t device) {
    const std::uint32_t other = device_of(schedule_[wait]);
    if (other == device || received_[wait.index] == device) return wait.index;
    const auto [place, is_new] = told_.try_emplace({wait.index, device}, next_);
    if (!is_new) return place->second;
    const Seconds at = timeline_.steps[wait.index].finish;
    for (const bool sends : {true, false}) {
      ChakraNode node{.id = next_, .name = "wait", .type = sends ? NodeType::send : NodeType::receive, .ran = {at, at}};
      node.attributes.add("is_cpu_op", bool_value, 0);
      message(node, 0, next_);
      if (sends) node.data.push_back(wait.index);
      nodes_[sends ? other : device].push_back({std::move(node), sends ? device : other});
    }
    return next_++;
  }

  const Problem& problem_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::uint32_t ranks_;                                 ///< of a device
  std::vector<std::vector<OfRanks>> nodes_;             // by device
  std::vector<std::optional<std::uint64_t>> last_;      // by stream
  std::vector<std::optional<std::uint32_t>> received_;  // by step: the device that has a node of it, too
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> told_;  // by step and device that waits for it
  std::uint64_t next_;                                                     // id of messages without bytes
};

}  // namespace

std::vector<ChakraFile> chakra_files(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                                     std::string_view made_by) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  return ChakraWriter(problem, schedule, timeline).files(made_by);
}

}  // namespace plimsoll
