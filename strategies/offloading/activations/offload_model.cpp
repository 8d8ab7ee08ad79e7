#include "strategies/offloading/activations/offload_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {
namespace {

class OffloadModelBuilder {
 public:
  OffloadModelBuilder(const PartTask& task, const Tape& tape, MemoryId store)
      : problem_(task.problem),
        graph_(problem_.graph),
        device_(task.part().device),
        forms_(1 + 2 * tape.codecs.size()),
        lives_(graph_.storages * forms_),
        exist_(graph_.storages, false) {
    resident_ = tape_cost(problem_, task.part(), Tape{}).peak;
    std::vector<bool> all_exist(graph_.storages, false);
    for (const Op& op : graph_.ops) {
      for (const TensorId t : op.outputs) {
        if (graph_[t].kind == TensorKind::parameter_gradient) add_gradient(t, all_gradients_, all_exist);
      }
    }
    model_.codecs = tape.codecs;
    for (const Action& action : tape.actions) {
      if (action.kind == ActionKind::run) {
        compute(action);
      } else if (action.kind == ActionKind::drop) {
        drop(action);
      } else {
        convert(action);
      }
    }
    const auto backward = [&](const Action& action) {
      return action.kind == ActionKind::run && graph_[action.op].phase != Phase::forward;
    };
    model_.turn = static_cast<std::uint32_t>(std::ranges::find_if(model_.computes, backward) - model_.computes.begin());
    std::ranges::stable_sort(model_.gaps, {}, &OffloadGap::from);
    find_earlier_gaps();
    find_store(store);
  }

  OffloadModel build() && { return std::move(model_); }

 private:
  /// A form of a storage from its making to its drop.
  struct Life {
    bool live = false;
    TensorId tensor;
    Bytes bytes;
    std::uint32_t made = 0, used = 0;
  };

  Life& life_of(TensorId t, Form form = {}) {
    const std::size_t plain = graph_[t].storage.index * forms_;
    if (form.kind == Form::Kind::plain) return lives_[plain];
    return lives_[plain + 1 + 2 * form.codec + (form.kind == Form::Kind::packed ? 0 : 1)];
  }

  /// What an op reads of a value: as lowering has it.
  Form form_read(const Op& op, TensorId t) {
    const auto codecs = static_cast<std::uint32_t>(model_.codecs.size());
    for (std::uint32_t c = 0; c < codecs; ++c) {
      if (life_of(t, {Form::Kind::restored, c}).live) return {Form::Kind::restored, c};
    }
    if (life_of(t).live) return {};
    for (std::uint32_t c = 0; c < codecs; ++c) {
      if (reads_packed(op, t, model_.codecs[c]) && life_of(t, {Form::Kind::packed, c}).live) {
        return {Form::Kind::packed, c};
      }
    }
    return {};
  }

  /// What it reads beside that.
  std::optional<Form> form_beside(const Op& op, TensorId t, Form read) {
    if (op.uses.empty() || read == Form{}) return std::nullopt;
    for (std::uint32_t c = 0; c < model_.codecs.size(); ++c) {
      const Form packed{Form::Kind::packed, c};
      if (reads_beside(op, t, model_.codecs[c]) && life_of(t, packed).live) return packed;
    }
    return std::nullopt;
  }

  std::uint32_t here() const { return static_cast<std::uint32_t>(model_.computes.size()); }

  /// Whether this parameter gradient is new; its bytes are counted once.
  bool add_gradient(TensorId t, Bytes& sum, std::vector<bool>& exists) const {
    if (problem_.gradients == Gradients::existing || exists[graph_[t].storage.index]) return false;
    exists[graph_[t].storage.index] = true;
    sum += graph_[t].bytes;
    return true;
  }

  void begin(TensorId t, Form form = {}) {
    const bool is_packed = form.kind == Form::Kind::packed;
    const Bytes bytes = is_packed ? packed_bytes(model_.codecs[form.codec], graph_, graph_[t]) : graph_[t].bytes;
    life_of(t, form) = {.live = true, .tensor = t, .bytes = bytes, .made = here(), .used = here()};
    live_ += bytes;
  }

  void use(TensorId t, Form form = {}) {
    Life& life = life_of(t, form);
    EXPECTS(life.live);
    const bool stays = graph_[life.tensor].kind == TensorKind::input || life.bytes == Bytes{0};
    if (here() > life.used && !stays) {
      model_.gaps.push_back({life.tensor, form, life.bytes, graph_[life.tensor].bytes, life.made, life.used, here()});
    }
    life.used = here();
  }

  /// A pack or unpack.
  void convert(const Action& action) {
    const TensorId t = action.tensor;
    const Codec& codec = model_.codecs[action.form.codec];
    const bool packs = action.kind == ActionKind::pack;
    const CodecCost cost = packs ? pack_cost(codec, graph_, graph_[t]) : unpack_cost(codec, graph_, graph_[t]);
    const Bytes gradients = problem_.micro_batches > 1 ? all_gradients_ : gradients_;
    model_.held.push_back(resident_ + gradients + live_);
    use(t, packs ? Form{} : action.form);
    begin(t, packs ? action.form : Form{Form::Kind::restored, action.form.codec});
    model_.memory.push_back(resident_ + gradients + live_ + cost.workspace);
    const Device& device = problem_.platform[device_];
    model_.time.push_back(packs ? pack_time(codec, graph_, graph_[t], device)
                                : unpack_time(codec, graph_, graph_[t], device));
    model_.computes.push_back(action);
    model_.drops.emplace_back();
  }

  void compute(const Action& action) {
    const Op& op = graph_[action.op];
    const bool again = problem_.micro_batches > 1;
    model_.held.push_back(resident_ + (again ? all_gradients_ : gradients_) + live_);
    for (const TensorId t : op.inputs) {
      if (!per_micro_batch(graph_[t].kind)) continue;
      if (graph_[t].kind == TensorKind::input && !life_of(t, form_read(op, t)).live) begin(t);
      const Form read = form_read(op, t);
      use(t, read);
      if (const std::optional<Form> also = form_beside(op, t, read)) use(t, *also);
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        makes_gradient = true;
        new_gradient |= add_gradient(t, gradients_, exist_);
      }
      if (!per_micro_batch(graph_[t].kind)) continue;
      if (action.saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      if (!life_of(t).live) begin(t);
      use(t);
      life_of(t).made = here();
    }
    for (const TensorId t : op.mutates) {
      if (per_micro_batch(graph_[t].kind)) life_of(t).made = here();
    }
    const Bytes plain = workspace(op, action.saving, false, action.implementation);
    const Bytes accumulating = workspace(op, action.saving, makes_gradient, action.implementation);
    Bytes needed = resident_ + gradients_ + live_ + (new_gradient ? plain : accumulating);
    if (again) needed = std::max(needed, resident_ + all_gradients_ + live_ + accumulating);
    model_.memory.push_back(needed);
    model_.time.push_back(duration_on(problem_, action.op, device_, action.saving, action.implementation));
    model_.computes.push_back(action);
    model_.drops.emplace_back();
  }

  void drop(const Action& action) {
    Life& life = life_of(action.tensor, action.form);
    EXPECTS(life.live && !model_.drops.empty());
    life.live = false;
    live_ -= life.bytes;
    model_.drops.back().push_back(action);
  }

  void find_earlier_gaps() {
    std::map<std::pair<TensorId, Form>, std::optional<std::uint32_t>> last;  // with positions
    for (std::uint32_t g = 0; g < model_.gaps.size(); ++g) {
      OffloadGap& gap = model_.gaps[g];
      std::optional<std::uint32_t>& before = last[{gap.tensor, gap.form}];
      if (before && model_.gaps[*before].until > gap.made) gap.earlier = before;
      if (gap.holds_positions()) before = g;
    }
  }

  void find_store(MemoryId store) {
    model_.store = store;
    const MemoryId own = problem_.platform[device_].memory;
    const std::optional<MemoryId> host = memory_at(problem_.platform, device_, store);
    if (!host) return;
    const std::optional<Route> out = route_between(problem_.platform, own, *host);
    const std::optional<Route> in = route_between(problem_.platform, *host, own);
    if (!out || !in) return;
    model_.has_host = true;
    model_.out = {.latency = out->latency, .bandwidth = out->bandwidth};
    model_.in = {.latency = in->latency, .bandwidth = in->bandwidth};
    if (problem_.platform[*host].capacity) model_.host_capacity = *problem_.platform[*host].capacity;
  }

  const Problem& problem_;
  const Graph& graph_;
  DeviceId device_;
  std::size_t forms_;        // of a storage
  std::vector<Life> lives_;  // by storage and form
  Bytes resident_, live_, gradients_, all_gradients_;
  std::vector<bool> exist_;  // by storage: parameter gradients
  OffloadModel model_;
};

}  // namespace

std::variant<OffloadModel, std::string> offload_model(const PartTask& task, const Tape* before, MemoryId store) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) return "activations are offloaded on one device only";
  if (before == nullptr)
    return OffloadModelBuilder(task, tape_of_ops(task.problem.graph, store_all_ops(task)), store).build();
  for (const Action& action : before->actions) {
    const bool moves = action.kind != ActionKind::run && action.kind != ActionKind::drop &&
                       action.kind != ActionKind::pack && action.kind != ActionKind::unpack;
    if (moves || action.at != place::device) {
      return "the pass before moves values itself";
    }
  }
  return OffloadModelBuilder(task, *before, store).build();
}

std::string no_host(const PartTask& task) {
  const Platform& platform = task.problem.platform;
  return "platform '" + platform.name + "' has no host memory that '" + platform[task.part().device].name +
         "' can reach";
}

std::uint32_t leaves_after(const OffloadModel& model, std::uint32_t gap, const std::vector<bool>& moved) {
  for (std::optional<std::uint32_t> g = model.gaps[gap].earlier; g; g = model.gaps[*g].earlier) {
    if (moved[*g]) return model.gaps[*g].until;
  }
  return model.gaps[gap].made;
}

std::vector<std::uint32_t> saved_gaps(const OffloadModel& model) {
  std::vector<std::uint32_t> saved;
  for (std::uint32_t g = 0; g < model.gaps.size(); ++g) {
    if (model.gaps[g].from < model.turn && model.turn <= model.gaps[g].until) saved.push_back(g);
  }
  return saved;
}

std::vector<Seconds> starts_without_copies(const OffloadModel& model) {
  std::vector<Seconds> starts(model.positions() + 1);
  for (std::size_t p = 0; p < model.positions(); ++p) starts[p + 1] = starts[p] + model.time[p];
  return starts;
}

}  // namespace plimsoll
