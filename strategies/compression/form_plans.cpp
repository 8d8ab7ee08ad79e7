#include "strategies/compression/form_plans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "sim/bound/range_maximum.h"
#include "sim/codec/predicted_error.h"
#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "sim/ops/layers.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/rematerialization/rotor/block_table.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {
namespace {

constexpr Codec signs_of_relu{.kind = CodecKind::mask, .bits = 1};

bool does_with_signs(const Graph& graph, const SavedUse& use) {
  const Op& op = graph[use.op];
  return op.uses.empty() ? reads_packed(op, signs_of_relu) : serves(signs_of_relu, use.layer_use());
}

/// What runs again for a value, while all values that wait for the backward wait on: its maker, and what makes those
/// of its inputs that died before.
class TimesAgain {
 public:
  TimesAgain(const OffloadModel& model, const OpModel& ops)
      : ops_(ops), position_(ops.ops.size(), 0), last_(ops.values.size(), 0), met_(ops.ops.size(), 0) {
    std::map<OpId, std::uint32_t> positions;
    for (std::uint32_t p = 0; p < model.positions(); ++p) positions[model.computes[p].op] = p;
    for (std::size_t o = 0; o < ops.ops.size(); ++o) position_[o] = positions.at(ops.ops[o].id);
    for (std::size_t v = 0; v < ops.values.size(); ++v) {
      for (const std::uint32_t reader : ops.values[v].readers) last_[v] = std::max(last_[v], position_[reader]);
    }
  }

  /// For a use at that position.
  Seconds of(std::uint32_t value, std::uint32_t use) {
    ++walks_;
    Seconds time;
    std::vector<std::uint32_t> open{*ops_.values[value].maker};
    while (!open.empty()) {
      const std::uint32_t o = open.back();
      open.pop_back();
      if (met_[o] == walks_) continue;
      met_[o] = walks_;
      time += ops_.ops[o].ways.back().time;
      for (const std::uint32_t v : ops_.ops[o].reads) {
        if (ops_.values[v].maker && last_[v] < use) open.push_back(*ops_.values[v].maker);
      }
    }
    return time;
  }

 private:
  const OpModel& ops_;
  std::vector<std::uint32_t> position_, last_;  // by op; by value: of its last use
  std::vector<std::uint64_t> met_;              // by op: the last walk
  std::uint64_t walks_ = 0;
};

std::vector<std::int64_t> counts(std::span<const Bytes> all) {
  std::vector<std::int64_t> numbers;
  for (const Bytes each : all) numbers.push_back(each.count);
  return numbers;
}

class FormsChooser {
 public:
  FormsChooser(const KeptForms& kept_forms, const OffloadModel& model, double largest_square, double price)
      : kept_forms_(kept_forms),
        memory_(counts(model.memory)),
        forms_(kept_forms.size(), 0),
        largest_square_(largest_square),
        price_(price) {}

  Bytes most() const { return Bytes{memory_.most()}; }

  /// As far down as that, or as it goes.
  void reach(Bytes level) {
    while (most() > level) {
      const auto fullest = static_cast<std::uint32_t>(memory_.where());
      std::optional<std::pair<std::size_t, std::uint32_t>> best;
      double least = 0;
      for (std::size_t i = 0; i < kept_forms_.size(); ++i) {
        for (std::uint32_t form = forms_[i] + 1; form < kept_forms_[i].forms.size(); ++form) {  // never back: it ends
          const Bytes gain = freed_at(i, form, fullest) - freed_at(i, forms_[i], fullest);
          if (gain <= Bytes{0} || square_ + more_square(i, form) > largest_square_) continue;
          const double cost =
              (more_time(i, form).value + price_ * more_square(i, form)) / static_cast<double>(gain.count);
          if (!best || cost < least) {
            best = {i, form};
            least = cost;
          }
        }
      }
      if (!best) return;
      take(best->first, best->second);
    }
  }

  /// Those that take the most time first.
  void relax(Bytes level) {
    std::vector<std::size_t> order(kept_forms_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return form_of(a).time > form_of(b).time; });
    for (const std::size_t i : order) {
      for (std::uint32_t form = 0; form < kept_forms_[i].forms.size(); ++form) {
        const std::uint32_t before = forms_[i];
        if (form == before || more_time(i, form) > Seconds{0}) continue;
        if (more_time(i, form) == Seconds{0} && more_square(i, form) >= 0) continue;
        if (square_ + more_square(i, form) > largest_square_) continue;
        take(i, form);
        if (most() <= level) break;
        take(i, before);
      }
    }
  }

  std::vector<std::uint32_t> forms() && { return std::move(forms_); }

 private:
  const KeptForm& form_of(std::size_t i) const { return kept_forms_[i].forms[forms_[i]]; }
  Seconds more_time(std::size_t i, std::uint32_t form) const {
    return kept_forms_[i].forms[form].time - form_of(i).time;
  }
  double more_square(std::size_t i, std::uint32_t form) const {
    return kept_forms_[i].forms[form].square - form_of(i).square;
  }

  Bytes freed_at(std::size_t i, std::uint32_t form, std::uint32_t position) const {
    Bytes freed;
    for (const FreedRange& range : kept_forms_[i].freed[form]) {
      if (range.begin <= position && position < range.end) freed += range.bytes;
    }
    return freed;
  }

  void take(std::size_t i, std::uint32_t form) {
    square_ += more_square(i, form);
    for (const FreedRange& range : kept_forms_[i].freed[forms_[i]])
      memory_.add(range.begin, range.end, range.bytes.count);
    forms_[i] = form;
    for (const FreedRange& range : kept_forms_[i].freed[form]) {
      memory_.add(range.begin, range.end, -range.bytes.count);
    }
  }

  const KeptForms& kept_forms_;
  RangeMaximum memory_;  // by position
  std::vector<std::uint32_t> forms_;
  double largest_square_, price_, square_ = 0;
};

/// Forms for the values of a stage, and what they save against all values as
/// they are.
struct StageWay {
  std::vector<std::pair<std::size_t, std::uint32_t>> forms;  ///< (saved value, form)
  Bytes waiting, reading;                                    ///< saved between the two phases, and in the backward
  Bytes packed;                                              ///< the largest packed form
  double cost = 0;                                           ///< seconds, the error's price included
};

/// As many as that of many, the first and the last among them.
template <class T>
std::vector<T> spread(std::vector<T> all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t k = 0; k < most; ++k) some.push_back(std::move(all[k * (all.size() - 1) / (most - 1)]));
  return some;
}

class StageWays {
 public:
  StageWays(const Graph& graph, const ChainGraph& index, const OffloadModel& model, std::span<const SavedTensor> saved,
            const KeptForms& kept_forms)
      : kept_forms_(kept_forms), of_(index.forward.size()) {
    std::map<OpId, std::size_t> stage_of;
    for (std::size_t s = 0; s < index.backward.size(); ++s) {
      if (index.backward[s] != no_op) stage_of[index.backward[s]] = s;
    }
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const SavedUse& first = saved[i].uses.front();
      const auto found = stage_of.find(first.op);
      if (found == stage_of.end()) continue;
      const bool is_made_there = model.computes[saved[i].from].op == index.forward[found->second];
      if (!is_made_there)
        continue;  // the last that uses it before its backward is that stage's
                   // forward
      of_[found->second].push_back({i, graph[saved[i].tensor].bytes, saved[i].from, first.position});
    }
  }

  /// Those of which none saves as much between the phases at less cost; the
  /// first: all as it is.
  std::vector<StageWay> ways(std::size_t stage, double price, std::size_t most) const {
    std::vector<StageWay> ways(1);
    for (const StageValue& value : of_[stage]) {
      std::vector<StageWay> longer;
      for (const StageWay& way : ways) {
        for (std::uint32_t form = 0; form < kept_forms_[value.index].forms.size(); ++form) {
          if (!kept_forms_[value.index].forms[form].again) longer.push_back(with(way, value, form, price));
        }
      }
      std::ranges::stable_sort(longer, {}, [](const StageWay& w) { return std::pair(w.waiting, w.reading); });
      std::vector<StageWay> best;  // from the end: what saves less must cost less
      for (std::size_t w = longer.size(); w-- > 0;) {
        if (best.empty() || longer[w].cost < best.back().cost) best.push_back(std::move(longer[w]));
      }
      std::ranges::reverse(best);
      constexpr std::size_t most_between = 64;
      ways = spread(std::move(best), most_between);
    }
    return spread(std::move(ways), most);
  }

 private:
  /// A value that the stage's backward is the first to read.
  struct StageValue {
    std::size_t index;
    Bytes bytes;
    std::uint32_t from, until;  ///< positions of forward and backward
  };

  StageWay with(StageWay way, const StageValue& value, std::uint32_t form, double price) const {
    const KeptForms::Value& kept = kept_forms_[value.index];
    way.forms.emplace_back(value.index, form);
    Bytes waiting;
    for (const FreedRange& range : kept.freed[form]) {
      if (range.begin <= value.from + 1 && value.from + 1 < range.end && value.from + 1 < value.until) {
        waiting += range.bytes;
      }
      if (range.begin <= value.until && value.until < range.end) way.reading += range.bytes;
    }
    way.waiting += waiting;
    if (form > 0) way.packed = std::max(way.packed, value.bytes - waiting);
    way.cost += kept.forms[form].time.value + price * kept.forms[form].square;
    return way;
  }

  const KeptForms& kept_forms_;
  std::vector<std::vector<StageValue>> of_;  // by stage
};

std::int64_t slots_for(std::size_t stages, const StageEffort& effort) {
  const std::size_t choices = effort.ways + (effort.recomputes ? stages / 3 : 0);
  const std::size_t cells = stages * (stages + 1) / 2 * choices;
  return std::clamp<std::int64_t>(effort.cells / static_cast<std::int64_t>(cells), 30, 500);
}

/// A stage as a block of the recursion: an option for each of its ways.
Block packing_block(const ChainModel& model, const RotorConditions& conditions, std::size_t i,
                    const std::vector<StageWay>& ways) {
  const Bytes made = model.input_gradient[i] + model.new_gradients[i] + model.backward_workspace[i];
  const Bytes backward = conditions.backward(i);
  Block block{.x = model.x[i],
              .held = conditions.held(i),
              .first_forward = conditions.null_step(i, i),
              .later_forwards = {},
              .nograd = model.nograd[i],
              .recomputable = model.recomputable[i],
              .options = {}};
  for (const StageWay& way : ways) {
    block.options.push_back({.kept = std::max(Bytes{0}, conditions.kept(i) - way.waiting),
                             .forward = std::max(conditions.forward(i), model.saved[i] + way.packed),
                             .backward = std::max(backward - way.reading, backward - made + way.packed),
                             .extra = Seconds{way.cost}});
  }
  return block;
}

/// The rows of steps of a table, and the forms of the ways in it.
PackedStages packed_stages(const std::vector<BlockStep>& steps, const std::vector<std::vector<StageWay>>& ways,
                           std::size_t values) {
  using Kind = BlockStep::Kind;
  PackedStages plan{{}, std::vector<std::uint32_t>(values, 0)};
  for (const BlockStep& step : steps) {
    switch (step.kind) {
      case Kind::forward_nothing:
        plan.sequence.push_back({ChainStep::Kind::forward, step.block});
        break;
      case Kind::forward_option:
        plan.sequence.push_back({ChainStep::Kind::forward_saving, step.block});
        for (const auto& [value, form] : ways[step.block][step.option].forms) plan.forms[value] = form;
        break;
      case Kind::backward_option:
        plan.sequence.push_back({ChainStep::Kind::backward, step.block});
        break;
    }
  }
  return plan;
}

}  // namespace

KeptForms::KeptForms(const Graph& graph, std::span<const SavedTensor> saved, std::span<const Codec> codecs,
                     const Device& device)
    : graph_(graph), saved_(saved), first_of_(graph.storages) {
  const ErrorShares shares(graph);
  std::vector<bool> rectified(graph.storages, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || layer_of(op) != SavedBy::relu) continue;
    for (const TensorId t : op.outputs) rectified[graph[t].storage.index] = true;
  }
  for (const SavedTensor& tensor : saved) {
    const Tensor& value = graph[tensor.tensor];
    const bool starts_again =
        std::ranges::any_of(tensor.uses, [](const SavedUse& use) { return use.by == SavedBy::checkpoint; });
    Value& kept = values_.emplace_back();
    kept.tensor = tensor.tensor;
    std::optional<std::size_t>& first = first_of_[value.storage.index];
    if (!first) first = values_.size() - 1;
    for (const SavedUse& use : tensor.uses) kept.takes_signs.push_back(does_with_signs(graph, use));
    const bool any_signs = std::ranges::find(kept.takes_signs, true) != kept.takes_signs.end();
    const bool all_signs = std::ranges::find(kept.takes_signs, false) == kept.takes_signs.end();
    kept.forms.emplace_back();
    if (any_signs && !cannot_pack(signs_of_relu, graph, value)) kept.forms.push_back({.signs = true});
    for (const Codec& codec : codecs) {
      if (all_signs || starts_again || cannot_pack(codec, graph, value)) continue;
      if (packed_bytes(codec, graph, value) >= value.bytes) continue;
      const double lost = codec_error(codec, rectified[value.storage.index] ? Noise::rectified : Noise::normal);
      KeptForm form{.codec = codec, .signs = any_signs, .time = pack_time(codec, graph, value, device)};
      std::optional<std::uint32_t> restored;  // the last position where it is, once for all uses of a stage
      for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
        if (kept.takes_signs[u] || restored == tensor.uses[u].position) continue;
        restored = tensor.uses[u].position;
        form.time += unpack_time(codec, graph, value, device);
        form.square += shares.of(tensor.uses[u].op, tensor.tensor, lost * lost);
      }
      kept.forms.push_back(form);
    }
    for (const KeptForm& form : kept.forms) kept.freed.push_back(freed_by(form, kept, tensor, graph));
  }
}

/// Against the value itself, which is there from its last use in the forward to its last use at all.
std::vector<FreedRange> KeptForms::freed_by(const KeptForm& form, const Value& kept, const SavedTensor& tensor,
                                            const Graph& graph) {
  std::vector<FreedRange> freed;
  if (!form.codec && !form.signs) return freed;
  const Tensor& value = graph[tensor.tensor];
  std::uint32_t plain = tensor.from, packed = tensor.from, signs = tensor.from;  // positions of their last uses
  for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
    (form.signs && kept.takes_signs[u] ? signs : form.codec ? packed : plain) = tensor.uses[u].position;
  }
  const std::uint32_t last = tensor.uses.back().position;
  freed.push_back({plain + 1, last + 1, value.bytes});
  if (packed > tensor.from)
    freed.push_back({tensor.from + 1, packed, Bytes{0} - packed_bytes(*form.codec, graph, value)});
  if (signs > tensor.from) {
    freed.push_back({tensor.from + 1, signs + 1, Bytes{0} - packed_bytes(signs_of_relu, graph, value)});
  }
  std::optional<std::uint32_t> restored;
  for (std::size_t u = 0; form.codec && u < tensor.uses.size(); ++u) {  // restored for these
    const std::uint32_t position = tensor.uses[u].position;
    if ((form.signs && kept.takes_signs[u]) || restored == position) continue;
    restored = position;
    freed.push_back({position, position + 1, Bytes{0} - value.bytes});
  }
  return freed;
}

void KeptForms::offer_recomputation(const OffloadModel& model, const OpModel& ops) {
  TimesAgain times(model, ops);
  std::map<std::uint32_t, std::uint32_t> value_in;  // by storage of the graph
  for (std::uint32_t v = 0; v < ops.values.size(); ++v) {
    const bool alone = ops.in_storage[ops.values[v].storage].size() == 1;
    if (alone && can_evict(ops, v)) value_in[graph_[ops.values[v].tensor].storage.index] = v;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto found = value_in.find(graph_[values_[i].tensor].storage.index);
    if (found == value_in.end()) continue;
    const std::uint32_t first = saved_[i].uses.front().position;
    values_[i].forms.push_back({.again = true, .time = times.of(found->second, first)});
    values_[i].freed.push_back({{saved_[i].from + 1, first, graph_[values_[i].tensor].bytes}});
  }
}

std::uint32_t KeptForms::form_of(std::size_t i, const std::optional<Codec>& codec) const {
  const std::vector<KeptForm>& forms = values_[i].forms;
  for (std::uint32_t f = 0; codec && f < forms.size(); ++f) {
    if (forms[f].codec == codec) return f;
  }
  return forms.size() > 1 && forms[1].signs && !forms[1].codec ? 1 : 0;
}

std::optional<Codec> KeptForms::codec_of(const KeptForm& form, const SavedUse& use) const {
  if (use.by == SavedBy::checkpoint) return std::nullopt;
  return form.signs && does_with_signs(graph_, use) ? std::optional(signs_of_relu) : form.codec;
}

CodecChoice KeptForms::choice(std::vector<std::uint32_t> forms) const {
  return [this, forms = std::move(forms)](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
    const auto i = static_cast<std::size_t>(&tensor - saved_.data());
    return codec_of(values_[i].forms[forms[i]], use);
  };
}

CodecChoice KeptForms::choice_elsewhere(std::vector<std::uint32_t> forms) const {
  return [this, forms = std::move(forms)](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
    const std::optional<std::size_t> i = value_of(tensor.tensor);
    return i ? codec_of(values_[*i].forms[forms[*i]], use) : std::nullopt;
  };
}

std::vector<std::vector<std::uint32_t>> forms_of_levels(const KeptForms& kept_forms, const OffloadModel& model,
                                                        std::uint32_t levels, double largest_square, double price) {
  FormsChooser chooser(kept_forms, model, largest_square, price);
  const Bytes most = chooser.most();
  FormsChooser lowest = chooser;
  lowest.reach(Bytes{0});
  const Bytes least = lowest.most();
  std::vector<std::vector<std::uint32_t>> chosen;
  std::vector<Bytes> between = budgets_between(Bytes{0}, most - least, levels);
  between.push_back(most - least);
  for (const Bytes below : std::span(between).subspan(1)) {
    const Bytes level = most - below;
    chooser.reach(level);
    FormsChooser relaxed = chooser;
    relaxed.relax(std::max(level, chooser.most()));
    chosen.push_back(std::move(relaxed).forms());
  }
  return chosen;
}

FormPlans::FormPlans(const PartTask& task, const OffloadModel& model, std::span<const SavedTensor> saved,
                     const KeptForms& kept_forms, const OpModel* ops, double largest_error)
    : task_(task), model_(model), saved_(saved), kept_forms_(kept_forms), ops_(ops), largest_error_(largest_error) {
  if (ops_ == nullptr) return;
  dies_.assign(ops_->values.size(), false);
  const std::size_t turn = last_forward(*ops_);
  for (std::uint32_t v = 0; v < dies_.size(); ++v) {
    const ModelValue& value = ops_->values[v];
    value_in_[task.problem.graph[value.tensor].storage.index] = v;
    dies_[v] = can_evict(*ops_, v) && (value.readers.empty() || value.readers.back() <= turn);
  }
}

std::optional<FormPlans::Measured> FormPlans::measure(Tape tape) {
  const std::variant<Schedule, std::string> lowered =
      lower(task_.problem, task_.partition, std::span<const Tape>(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
  const auto& schedule = std::get<Schedule>(lowered);
  const double error = predicted_errors(schedule, task_.problem.graph).whole;
  if (error > largest_error_) return std::nullopt;
  const Timeline timeline = simulate_event(schedule, task_.problem.platform);
  const MemoryId memory = task_.problem.platform[task_.part().device].memory;
  const Measured measured{timeline.peaks[memory.index].bytes, timeline.makespan, error};
  PlannedTape planned{std::move(tape), measured.peak, measured.makespan, std::nullopt};
  if (error > error_) {
    later_.emplace_back(error, std::move(planned));
  } else {
    pool_.add(std::move(planned));
  }
  return measured;
}

void FormPlans::allow(double error) {
  EXPECTS(error_ <= error && error <= largest_error_);
  error_ = error;
  std::erase_if(later_, [&](std::pair<double, PlannedTape>& each) {
    if (each.first > error) return false;
    pool_.add(std::move(each.second));
    return true;
  });
}

/// Runs again what the forms say, then packs what they say of what is there now; nothing where that cannot be.
std::optional<Tape> FormPlans::tape_again(const std::vector<std::uint32_t>& forms) const {
  Evicted evicted = dies_;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (kept_forms_[i].forms[forms[i]].again) {
      evicted[value_in_.at(task_.problem.graph[kept_forms_[i].tensor].storage.index)] = true;
    }
  }
  const std::optional<OpSequence> sequence = recompute_order(*ops_, evicted);
  return sequence ? std::optional(tape_of_ops(task_.problem.graph, *sequence)) : std::nullopt;
}

void FormPlans::add(const std::vector<std::uint32_t>& forms) {
  const auto [place, is_new] = tried_.try_emplace(forms);
  if (!is_new) return;
  bool again = false, packs = false;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    (kept_forms_[i].forms[forms[i]].again ? again : packs) |= forms[i] > 0;
  }
  if (!again) {
    place->second = measure(packed_tape(task_.problem.graph, model_, saved_, kept_forms_.choice(forms)));
    return;
  }
  std::optional<Tape> tape = tape_again(forms);
  if (!tape) return;
  if (packs) {
    const auto model = std::get<OffloadModel>(offload_model(task_, &*tape));
    tape = packed_tape(task_.problem.graph, model, saved_tensors(task_.problem.graph, model),
                       kept_forms_.choice_elsewhere(forms));
  }
  place->second = measure(std::move(*tape));
}

void FormPlans::add(const Tape& tape, const std::vector<std::uint32_t>& forms) {
  const auto model = std::get<OffloadModel>(offload_model(task_, &tape));
  measure(packed_tape(task_.problem.graph, model, saved_tensors(task_.problem.graph, model),
                      kept_forms_.choice_elsewhere(forms)));
}

/// By rising memory.
std::vector<std::vector<std::uint32_t>> FormPlans::front() const {
  FrontOf<std::vector<std::uint32_t>> front;
  for (const auto& [forms, measured] : tried_) {
    if (measured && measured->error <= error_) front.add(measured->peak, measured->makespan, forms);
  }
  return std::move(front).plans();
}

void FormPlans::improve(std::size_t trials) {
  std::set<std::vector<std::uint32_t>> done;
  const std::size_t before = tried_.size();
  for (bool any = true; any;) {
    any = false;
    for (const std::vector<std::uint32_t>& forms : front()) {
      if (!done.insert(forms).second) continue;
      any = true;
      for (std::size_t i = 0; i < forms.size(); ++i) {
        std::vector<std::uint32_t> changed = forms;
        for (changed[i] = 0; changed[i] < kept_forms_[i].forms.size(); ++changed[i]) {
          if (tried_.size() >= before + trials) return;
          add(changed);
        }
      }
    }
  }
}

std::vector<PackedStages> stage_plans(const PartTask& task, const OffloadModel& plain,
                                      std::span<const SavedTensor> saved, const KeptForms& kept_forms,
                                      std::span<const double> prices, const StageEffort& effort) {
  const ChainPart part = chain_part(task.problem, task.part());
  ChainModel model = chain_model(task.problem, part);
  if (!effort.recomputes) model.recomputable.assign(model.stages(), false);
  const RotorConditions conditions(model);
  const StageWays all_ways(task.problem.graph, *task.problem.index, plain, saved, kept_forms);
  const Bytes most = evaluate(model, store_all_sequence(model.stages())).peak - model.resident - model.x[0];
  std::vector<PackedStages> plans;
  for (const double price : prices) {
    std::vector<std::vector<StageWay>> ways;
    std::vector<Block> blocks;
    Bytes packing;
    for (std::size_t i = 0; i < model.stages(); ++i) {
      ways.push_back(all_ways.ways(part.first + part.forward_only + i, price, effort.ways));
      blocks.push_back(packing_block(model, conditions, i, ways.back()));
      for (const StageWay& way : ways.back()) packing = std::max(packing, way.packed);
    }
    const BlockTable table(blocks, OptionUse::anywhere, most + packing, slots_for(blocks.size(), effort));
    std::vector<std::size_t> chosen(table.plans());
    for (std::size_t k = 0; k < chosen.size(); ++k) chosen[k] = k;
    for (const std::size_t k : spread(std::move(chosen), effort.plans)) {
      plans.push_back(packed_stages(table.plan(k), ways, kept_forms.size()));
    }
  }
  return plans;
}

}  // namespace plimsoll
