#include "traces/imports/dtr_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr double nanoseconds_in_second = 1e9;

class Conversion {
 public:
  explicit Conversion(const OpLog& log) : log_(log), tensor_of_(log.tensors.size()), kept_(log.tensors.size(), false) {
    graph_.name = log.name;
    graph_.source.kind = Source::Kind::measured;
    graph_.source.device = "unknown, of a DTR log";
  }

  Graph run() {
    find_roots();
    for (const LoggedCall& call : log_.calls) {
      if (call.keep == Keep::forever) {
        add_tensor(call.results.front(), TensorKind::parameter);
        ++constants_;
        constant_bytes_ += log_[call.results.front()].bytes;
      } else {
        add_op(call);
      }
    }
    if (graph_.ops.empty()) throw InputError(located(log_.name, {}, "", "no call makes anything but views"));
    write_notes();
    return std::move(graph_);
  }

 private:
  /// The tensor that owns a tensor's storage, who reads it, and whether the program still holds it at the end.
  void find_roots() {
    for (std::uint32_t t = 0; t < log_.tensors.size(); ++t) {
      const std::optional<TensorId> base = log_.tensors[t].alias_of;
      root_.push_back(base ? root_[base->index] : t);
    }
    for (const TensorId t : log_.kept) kept_[root_[t.index]] = true;
    read_.resize(log_.tensors.size(), false);
    for (const LoggedCall& call : log_.calls) {
      const bool only_views =
          std::ranges::all_of(call.results, [&](TensorId t) { return log_[t].alias_of.has_value(); });
      if (only_views) continue;
      for (const TensorId t : call.arguments) read_[root_[t.index]] = true;
    }
  }

  TensorId add_tensor(TensorId logged, TensorKind kind) {
    const auto made = id_at<TensorId>(graph_.tensors.size());
    graph_.tensors.push_back({.name = log_[logged].name,
                              .kind = kind,
                              .bytes = log_[logged].bytes,
                              .storage = id_at<StorageId>(graph_.storages++),
                              .shape = {},
                              .dtype = {}});
    tensor_of_[logged.index] = made;
    return made;
  }

  TensorKind kind_of(TensorId result, Phase phase) {
    if (phase == Phase::forward) {
      if (kept_[result.index]) ++lost_;
      return TensorKind::activation;
    }
    if (!kept_[result.index]) return TensorKind::gradient;
    if (!read_[result.index]) return TensorKind::parameter_gradient;
    ++lost_;
    return TensorKind::gradient;
  }

  void add_op(const LoggedCall& call) {
    Op op;
    for (const TensorId t : call.results) {
      if (log_[t].alias_of) {
        ++views_;
      } else {
        op.outputs.push_back(add_tensor(t, kind_of(t, call.phase)));
      }
    }
    const double seconds = static_cast<double>(call.nanoseconds) / nanoseconds_in_second;
    if (op.outputs.empty()) {
      view_time_ += Seconds{seconds};
      return;
    }
    op.name = fmt::format("{}/{}", call.name, graph_.ops.size());
    op.kind = call.name;
    op.phase = call.phase;
    op.duration = Seconds{seconds};
    for (const TensorId t : call.arguments) {
      const TensorId input = tensor_of_[root_[t.index]];
      if (std::ranges::find(op.inputs, input) == op.inputs.end()) op.inputs.push_back(input);
    }
    graph_.ops.push_back(std::move(op));
  }

  void write_notes() {
    auto& notes = graph_.source.notes;
    notes.emplace_back("imported_from", "a DTR log: times in ns became seconds, bytes are those of the log");
    notes.emplace_back("constants", fmt::format("{} constants of {} bytes became parameters, resident throughout: the "
                                                "log does not tell inputs, parameters and buffers apart",
                                                constants_, constant_bytes_.count));
    notes.emplace_back("views", fmt::format("{} views were left out with their {} s; their readers read the storage",
                                            views_, view_time_.value));
    notes.emplace_back("mutations", "an op that overwrites a tensor makes a new one instead");
    notes.emplace_back("phases", log_.marks_backward ? "backward begins where the log says so"
                                                     : "the log does not mark backward: all ops are forward");
    notes.emplace_back("kept", fmt::format("what backward makes, the program keeps and nobody reads became parameter "
                                           "gradients; {} other tensors that it keeps die after their last use",
                                           lost_));
  }

  const OpLog& log_;
  Graph graph_;
  std::vector<std::uint32_t> root_;
  std::vector<TensorId> tensor_of_;
  std::vector<bool> kept_, read_;  // by root
  std::size_t constants_ = 0, views_ = 0, lost_ = 0;
  Bytes constant_bytes_;
  Seconds view_time_;
};

}  // namespace

Graph graph_of_dtr_log(const OpLog& log) {
  return Conversion(log).run();
}

}  // namespace plimsoll
