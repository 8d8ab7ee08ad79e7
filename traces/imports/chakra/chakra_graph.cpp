// Every node that a device runs is an op. Values are the tensors that attributes `inputs` and `outputs` list, each name
// with its bytes; a node that needs another without reading a value of its reads a value of no bytes. Our own files say
// what Chakra has no word for in further attributes: phases, kinds of tensors, whose storage a result takes.

#include "traces/imports/chakra/chakra_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "traces/imports/chakra/chakra_trace.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

struct ListedTensor {
  std::string name;
  Bytes bytes;
};

bool exchanges(ChakraType type) {
  return type == ChakraType::send || type == ChakraType::receive || type == ChakraType::collective;
}

class ChakraLowering {
 public:
  ChakraLowering(const ReadChakraTrace& trace, const std::filesystem::path& path) : trace_(trace), path_(path) {}

  Graph graph() && {
    choose();
    for (const std::uint32_t n : order()) add(n);
    if (made_.ops.empty()) throw InputError(located(path_.string(), {}, "", "no nodes that compute or communicate"));
    if (is_ours_) mark_saved(made_);
    write_source();
    return std::move(made_);
  }

 private:
  const ReadChakraNode& node(std::uint32_t n) const { return trace_.nodes[n]; }

  [[noreturn]] void refuse(std::uint32_t n, std::string_view what) const {
    throw InputError(located(path_.string(), {}, node(n).place, what));
  }

  const ChakraAttribute* attribute(std::uint32_t n, std::string_view name) const {
    const auto place = node(n).attributes.find(name);
    return place == node(n).attributes.end() ? nullptr : &place->second;
  }

  double number(std::uint32_t n, std::string_view name) const {
    const ChakraAttribute* const found = attribute(n, name);
    if (found == nullptr) return 0;
    constexpr double most = 4e18;
    if (!(found->number >= 0) || found->number > most) {
      refuse(n, fmt::format("attribute {}: expected 0 or more, at most 4e18, found {}", name, found->number));
    }
    return found->number;
  }

  std::string text(std::uint32_t n, std::string_view name) const {
    const ChakraAttribute* const found = attribute(n, name);
    return found == nullptr ? "" : found->text;
  }

  static std::string item(const ChakraAttribute* list, std::size_t k) {
    return list != nullptr && k < list->texts.size() ? list->texts[k] : "";
  }

  // --- which nodes

  bool is_host(std::uint32_t n) const { return number(n, "is_cpu_op") > 0; }

  /// What runs on hosts is left out where devices run anything.
  void choose() {
    is_ours_ = trace_.attributes.contains("strategy");
    bool any_on_device = false;
    for (std::uint32_t n = 0; n < trace_.nodes.size(); ++n) {
      if (!place_.try_emplace(node(n).id, n).second) {
        refuse(n, fmt::format("a second node {}: a file of several ranks, expected one", node(n).id));
      }
      if (node(n).type == ChakraType::invalid) refuse(n, "a node of type 0, which is invalid");
      any_on_device = any_on_device || (node(n).type != ChakraType::metadata && !is_host(n));
      has_times_ = has_times_ || node(n).microseconds > 0 || number(n, "duration_ns") > 0;
    }
    is_chosen_.resize(trace_.nodes.size());
    for (std::uint32_t n = 0; n < trace_.nodes.size(); ++n) {
      if (node(n).type == ChakraType::metadata) continue;
      is_chosen_[n] = !any_on_device || !is_host(n);
      if (is_chosen_[n]) continue;
      ++host_nodes_;
      host_time_ += duration(n);
    }
  }

  Seconds duration(std::uint32_t n) const {
    constexpr double of_micro = 1e6, of_nano = 1e9, most = 1e9;
    const double seconds = attribute(n, "duration_ns") != nullptr
                               ? number(n, "duration_ns") / of_nano
                               : static_cast<double>(node(n).microseconds) / of_micro;
    if (seconds > most) refuse(n, "a duration that is absurdly long");
    return Seconds{seconds};
  }

  /// The file's, as far as what nodes need comes first.
  std::vector<std::uint32_t> order() const {
    enum class Mark : std::uint8_t { fresh, open, done };
    std::vector<Mark> marks(trace_.nodes.size(), Mark::fresh);
    std::vector<std::uint32_t> made;
    struct Visit {
      std::uint32_t node;
      std::size_t next;
    };
    for (std::uint32_t first = 0; first < trace_.nodes.size(); ++first) {
      if (marks[first] != Mark::fresh) continue;
      std::vector<Visit> path{{first, 0}};
      marks[first] = Mark::open;
      while (!path.empty()) {
        Visit& visit = path.back();
        if (visit.next == node(visit.node).data.size()) {
          marks[visit.node] = Mark::done;
          if (is_chosen_[visit.node]) made.push_back(visit.node);
          path.pop_back();
          continue;
        }
        const auto other = place_.find(node(visit.node).data[visit.next++]);
        if (other == place_.end() || marks[other->second] == Mark::done) continue;
        if (marks[other->second] == Mark::open) {
          refuse(visit.node, fmt::format("data_deps: needs node {}, which needs it in turn", node(other->second).id));
        }
        marks[other->second] = Mark::open;
        path.push_back({other->second, 0});
      }
    }
    return made;
  }

  // --- ops

  std::vector<ListedTensor> listed(std::uint32_t n, std::string_view name) const {
    std::vector<ListedTensor> made;
    const ChakraAttribute* const list = attribute(n, name);
    if (list == nullptr) return made;
    for (std::size_t k = 0; k + 1 < list->texts.size(); k += 2) {
      const std::string& written = list->texts[k + 1];
      double bytes = 0;
      const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), bytes);
      constexpr double most = 1e15;
      if (error != std::errc() || !(bytes >= 0) || bytes > most) {
        refuse(n, fmt::format("attribute {}: expected the bytes of '{}', found '{}'", name, list->texts[k], written));
      }
      bytes_ += bytes;
      constexpr double most_together = 4e18;
      if (bytes_ > most_together) refuse(n, "tensors that are absurdly large together");
      made.push_back({list->texts[k], Bytes{std::llround(bytes)}});
    }
    return made;
  }

  TensorId tensor(std::string name, TensorKind kind, Bytes bytes, std::optional<StorageId> storage = {}) {
    made_.tensors.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = bytes,
                             .storage = storage ? *storage : id_at<StorageId>(made_.storages++),
                             .shape = {},
                             .dtype = {}});
    return id_at<TensorId>(made_.tensors.size() - 1);
  }

  TensorKind kind_of(std::uint32_t n, const std::string& word, TensorKind otherwise) const {
    if (word.empty()) return otherwise;
    const std::optional<TensorKind> kind = from_name<TensorKind>(word);
    if (!kind) refuse(n, fmt::format("a tensor of the unknown kind '{}'", word));
    return *kind;
  }

  void add(std::uint32_t n) {
    Op op{.name = node(n).name, .kind = text(n, "op_kind")};
    if (op.kind.empty() && !is_ours_) op.kind = text(n, "op_type");
    if (const std::string phase = text(n, "phase"); !phase.empty()) {
      const std::optional<Phase> known = from_name<Phase>(phase);
      if (!known) refuse(n, fmt::format("an unknown phase '{}'", phase));
      op.phase = *known;
    }
    work(n, op);
    read(n, op);
    write(n, op);
    need(n, op);
    made_.ops.push_back(std::move(op));
  }

  void work(std::uint32_t n, Op& op) {
    const bool is_message = exchanges(node(n).type);
    constexpr std::string_view size = "tensor_size";
    const bool states_flops = attribute(n, "num_ops") != nullptr, states_bytes = attribute(n, size) != nullptr;
    if (states_flops || !has_times_) op.flops = Flops{std::round(number(n, "num_ops"))};
    if (states_bytes || is_message || !has_times_) {
      op.bytes_moved = Bytes{std::llround(number(n, is_message ? "comm_size" : size))};
    }
    if (has_times_) op.duration = duration(n);
    op.workspace = Bytes{std::llround(number(n, "workspace_bytes"))};
    if (!is_message) return;
    ++messages_;
    message_bytes_ += number(n, "comm_size");
    const std::string group = text(n, "pg_name");
    if (!group.empty()) op.attributes.emplace_back("pg_name", group);
  }

  void read(std::uint32_t n, Op& op) {
    const ChakraAttribute* const kinds = attribute(n, "input_kinds");
    const std::vector<ListedTensor> inputs = listed(n, "inputs");
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      auto place = values_.find(inputs[k].name);
      if (place == values_.end()) {
        const TensorKind kind = kind_of(n, item(kinds, k), TensorKind::input);
        place = values_.emplace(inputs[k].name, tensor(inputs[k].name, kind, inputs[k].bytes)).first;
        if (!is_given(kind)) refuse(n, fmt::format("reads '{}', which no node makes", inputs[k].name));
      }
      op.inputs.push_back(place->second);
    }
  }

  void write(std::uint32_t n, Op& op) {
    const ChakraAttribute* const kinds = attribute(n, "output_kinds");
    const ChakraAttribute* const owners = attribute(n, "gradient_of");
    const std::vector<ListedTensor> outputs = listed(n, "outputs");
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const TensorKind kind =
          kind_of(n, item(kinds, k), is_backward(op.phase) ? TensorKind::gradient : TensorKind::activation);
      const auto known = values_.find(outputs[k].name);
      const bool adds = kind == TensorKind::parameter_gradient && known != values_.end();
      if (adds) {
        op.outputs.push_back(known->second);
        continue;
      }
      std::optional<StorageId> storage;
      const bool is_read =
          known != values_.end() && std::ranges::find(op.inputs, known->second) != op.inputs.end() &&
          (op.phase == Phase::update ? made_[known->second].kind == kind : !is_given(made_[known->second].kind));
      if (is_given(kind) && !is_read)
        refuse(n, fmt::format("makes '{}', which is there from the start", outputs[k].name));
      if (is_read) {
        storage = made_[known->second].storage;
        op.mutates.push_back(known->second);
      }
      const std::string name = is_read ? outputs[k].name + " updated" : outputs[k].name;
      const TensorId t = tensor(name, kind, storage ? made_[known->second].bytes : outputs[k].bytes, storage);
      if (const std::string owner = item(owners, k); !owner.empty()) {
        const auto of = values_.find(owner);
        if (of != values_.end() && made_[of->second].kind == TensorKind::parameter) {
          made_.tensors[t.index].gradient_of = of->second;
        }
      }
      values_[outputs[k].name] = t;
      op.outputs.push_back(t);
    }
    if (is_chosen_[n]) op_of_[n] = static_cast<std::uint32_t>(made_.ops.size());
  }

  /// A value of no bytes for what the node needs and does not read.
  void need(std::uint32_t n, Op& op) {
    if (is_ours_) return;  // all that a step reads is listed
    std::set<std::uint32_t> needed;
    for (const std::uint64_t id : node(n).data) {
      const auto other = place_.find(id);
      if (other == place_.end()) {
        ++unknown_;
      } else if (is_chosen_[other->second]) {
        needed.insert(op_of_.at(other->second));
      }
    }
    for (const std::uint32_t other : needed) {
      Op& before = made_.ops[other];
      const auto reads = [&](TensorId t) { return std::ranges::find(op.inputs, t) != op.inputs.end(); };
      if (std::ranges::any_of(before.outputs, reads)) continue;
      const auto is_token = [&](TensorId t) { return made_[t].bytes.count == 0; };
      auto token = std::ranges::find_if(before.outputs, is_token);
      if (token == before.outputs.end()) {
        const TensorKind kind = is_backward(before.phase) ? TensorKind::gradient : TensorKind::activation;
        before.outputs.push_back(tensor(before.name + " done", kind, Bytes{}));
        token = before.outputs.end() - 1;
      }
      op.inputs.push_back(*token);
    }
  }

  void write_source() {
    Source& source = made_.source;
    if (has_times_) {
      source.kind = Source::Kind::measured;
      source.device = "unknown, of an execution trace";
    }
    auto& notes = source.notes;
    notes.emplace_back("imported_from", trace_.version.empty()
                                            ? "an execution trace of Chakra"
                                            : fmt::format("an execution trace of Chakra {}", trace_.version));
    for (const std::string_view key : {"trace", "platform", "strategy"}) {
      const auto place = trace_.attributes.find(key);
      if (place != trace_.attributes.end()) notes.emplace_back(fmt::format("of_{}", key), place->second.text);
    }
    notes.emplace_back("times", has_times_ ? "the file's durations" : "none in the file: flops and bytes of each node");
    notes.emplace_back("messages", fmt::format("{} collectives, sends and receives, {} bytes", messages_,
                                               std::llround(message_bytes_)));
    std::string left_out = "what ctrl_deps order, streams and dates";
    if (!is_ours_) left_out += "; phases: all ops are the forward's";
    if (host_nodes_ > 0) {
      left_out += fmt::format("; {} nodes of hosts, {:.6f} s", host_nodes_, host_time_.value);
    }
    if (unknown_ > 0) left_out += fmt::format("; {} dependencies on nodes that the file does not have", unknown_);
    if (messages_ > 0) {
      const auto rank = trace_.attributes.find("rank");
      left_out += fmt::format(
          "; this is rank {} of several: its messages {}",
          rank == trace_.attributes.end() ? rank_of_name() : std::to_string(std::llround(rank->second.number)),
          has_times_ ? "take the file's times" : "count as memory traffic of one rank only");
    }
    notes.emplace_back("left_out", std::move(left_out));
  }

  /// `4` of `NAME.4.et`
  std::string rank_of_name() const {
    const std::string word = path_.stem().extension().string();
    const bool is_number =
        word.size() > 1 && std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; });
    return is_number ? word.substr(1) : "one";
  }

  const ReadChakraTrace& trace_;
  std::filesystem::path path_;
  Graph made_;
  std::unordered_map<std::uint64_t, std::uint32_t> place_;  // by id
  std::vector<bool> is_chosen_;                             // by node
  std::unordered_map<std::uint32_t, std::uint32_t> op_of_;  // by node
  std::unordered_map<std::string, TensorId> values_;        // the latest of each name
  mutable double bytes_ = 0;
  double message_bytes_ = 0;
  bool is_ours_ = false, has_times_ = false;
  std::size_t host_nodes_ = 0, messages_ = 0, unknown_ = 0;
  Seconds host_time_{};
};

}  // namespace

Graph parse_chakra_graph(std::string text, const std::string& file_name) {
  const ReadChakraTrace trace = parse_chakra_trace(std::move(text), file_name);
  Graph graph = ChakraLowering(trace, file_name).graph();
  graph.name = std::filesystem::path(file_name).stem().string();
  return checked(std::move(graph), file_name);
}

Graph read_chakra_graph(const std::filesystem::path& path) {
  return parse_chakra_graph(read_text_file(path), path.string());
}

}  // namespace plimsoll
