#include "strategies/compression/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "sim/io/input_error.h"
#include "sim/ops/layers.h"
#include "strategies/api/front.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/part_alone.h"
#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {
namespace {

// Signs of what ReLUs have made, from what batch norms keep for their own backward: a batch norm, an addition of two
// and a ReLU run again right before the ReLU's gradient, so that nothing has to wait for it.

class SignChains {
 public:
  SignChains(const Graph& graph, std::span<const SavedTensor> saved, const CodecChoice& choice)
      : graph_(graph), saved_(saved), choice_(choice), makers_(graph.tensors.size()) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase != Phase::forward) continue;
      for (const TensorId t : graph.ops[o].outputs) makers_[t.index] = id_at<OpId>(o);
    }
  }

  /// From batch norms to the ReLU that has made the value; empty where that cannot run again at the position.
  std::vector<OpId> chain(const SavedTensor& made, std::uint32_t position) const {
    const std::optional<OpId> relu = relu_of(made);
    if (!relu || graph_[*relu].inputs.size() != 1) return {};
    const std::optional<OpId> before = makers_[graph_[*relu].inputs[0].index];
    if (!before) return {};
    std::vector<OpId> ops;
    const bool adds = is_one_of(op_kind(graph_[*before]), OpKind::add, OpKind::add_in_place);
    if (adds) {
      for (const TensorId t : graph_[*before].inputs) {
        const std::optional<OpId> maker = makers_[t.index];
        if (!maker || !runs_again(*maker, position)) return {};
        ops.push_back(*maker);
      }
    } else if (!runs_again(*before, position)) {
      return {};
    }
    ops.push_back(*before);
    ops.push_back(*relu);
    return ops;
  }

  /// The ops in order, each followed by drops of what only the chain reads.
  std::vector<Action> actions(const std::vector<OpId>& chain) const {
    std::vector<Action> made;
    for (std::size_t k = 0; k < chain.size(); ++k) {
      made.push_back(run(chain[k], Saving::nothing));
      for (const TensorId t : graph_[chain[k]].inputs) {
        const auto makes = [&](OpId op) { return has_storage(graph_[op].outputs, t); };
        const bool of_chain = std::any_of(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(k), makes);
        if (of_chain && !makes(chain[k])) made.push_back(on_tensor(ActionKind::drop, t));
      }
    }
    return made;
  }

 private:
  bool has_storage(const std::vector<TensorId>& tensors, TensorId t) const {
    return std::ranges::any_of(tensors, [&](TensorId each) { return graph_[each].storage == graph_[t].storage; });
  }

  std::optional<OpId> relu_of(const SavedTensor& made) const {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      const bool is_relu = op.phase == Phase::forward && layer_of(op) == SavedBy::relu;
      if (is_relu && has_storage(op.outputs, made.tensor)) return id_at<OpId>(o);
    }
    return std::nullopt;
  }

  bool runs_again(OpId id, std::uint32_t position) const {
    const Op& op = graph_[id];
    if (layer_of(op) != SavedBy::bn || !op.recomputable || !op.mutates.empty()) return false;
    return std::ranges::all_of(
        op.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter || waits(t, position); });
  }

  /// As it is, from before the position to after it.
  bool waits(TensorId t, std::uint32_t position) const {
    return std::ranges::any_of(saved_, [&](const SavedTensor& each) {
      return graph_[each.tensor].storage == graph_[t].storage && each.from < position &&
             std::ranges::any_of(each.uses, [&](const SavedUse& use) {
               return use.position > position && use.by == SavedBy::bn && !choice_(each, use);
             });
    });
  }

  const Graph& graph_;
  std::span<const SavedTensor> saved_;
  const CodecChoice& choice_;
  std::vector<std::optional<OpId>> makers_;  // by tensor: in the forward
};

/// Before which positions which ops run again. A ReLU's chain of ops does if it begins with batch norms alone whose
/// inputs wait as they are until later; the signs of other ReLUs must be kept.
Reruns signs_anew(const Graph& graph, std::span<const SavedTensor> saved, const CodecChoice& choice) {
  const SignChains chains(graph, saved, choice);
  Reruns reruns;
  for (const SavedTensor& made : saved) {
    for (const SavedUse& use : made.uses) {
      if (use.by != SavedBy::relu || !use.is_result) continue;
      const std::vector<OpId> chain = chains.chain(made, use.position);
      if (!chain.empty()) reruns.emplace(use.position, chains.actions(chain));
    }
  }
  return reruns;
}

/// What is recomputed and read so many positions later is not worth packing.
constexpr std::uint32_t soon = 2;

/// `conv.input` as `conv` and `.input`.
std::pair<std::string_view, std::string_view> split(std::string_view term) {
  const std::size_t dot = term.find('.');
  if (dot == std::string_view::npos) return {term, {}};
  return {term.substr(0, dot), term.substr(dot)};
}

std::vector<std::string_view> terms_of(std::string_view text) {
  std::vector<std::string_view> terms;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    terms.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return terms;
}

/// Whether the value, or an approximation, comes back from the packed form.
bool restores(const Codec& codec) {
  return codec.kind != CodecKind::mask && codec.kind != CodecKind::index && codec.kind != CodecKind::step &&
         codec.kind != CodecKind::rows && codec.kind != CodecKind::projection;
}

class PackedTape {
 public:
  PackedTape(const Graph& graph, const OffloadModel& model, const PackingChoice& choice)
      : graph_(graph),
        model_(model),
        choice_(choice),
        before_(model.positions()),
        after_(model.positions()),
        drops_(model.drops) {
    tape_.codecs = model.codecs;
  }

  void add(const SavedTensor& saved) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_codec;  // positions of uses
    std::set<std::uint32_t> plain, reruns;  // of those that take the value as it is, and forwards among them
    std::set<std::uint32_t> anew;           // for which it is made again
    std::vector<std::optional<Codec>> chosen;
    for (const SavedUse& use : saved.uses) {
      if (use.by == SavedBy::relu && use.is_result && choice_.reruns.contains(use.position)) {
        chosen.emplace_back();
        anew.insert(use.position);
        continue;
      }
      std::optional<Codec>& codec = chosen.emplace_back(choice_.codec(saved, use));
      if (codec && !serves(*codec, saved.tensor, use)) codec.reset();
      if (!codec) plain.insert(use.position);
      if (!codec && use.by == SavedBy::checkpoint) reruns.insert(use.position);
    }
    std::set<std::uint32_t> served;  // where all of a stage's uses can do with one packed form as it is
    const auto serves_all = [&](std::size_t u) {
      return chosen[u] && reads_packed(graph_[saved.uses[u].op], saved.tensor, *chosen[u]);
    };
    for (std::size_t u = 0; u < chosen.size(); ++u) {
      if (serves_all(u)) served.insert(saved.uses[u].position);
    }
    for (std::size_t u = 0; u < chosen.size(); ++u) {
      const std::uint32_t position = saved.uses[u].position;
      if (!chosen[u] || plain.contains(position)) continue;  // a stage that needs the value itself has it
      if (served.contains(position) && !serves_all(u)) continue;
      std::vector<std::uint32_t>& uses = by_codec[number_of(*chosen[u])];
      if (uses.empty() || uses.back() != position) uses.push_back(position);
    }
    for (const std::uint32_t position : anew) {  // unless it is there still
      if (!plain.empty() && position <= *plain.rbegin() + choice_.stays) plain.insert(position);
    }
    std::erase_if(anew, [&](std::uint32_t position) { return plain.contains(position); });
    const std::optional<std::uint32_t> last_plain = plain.empty() ? std::nullopt : std::optional(*plain.rbegin());
    for (auto& [codec, uses] : by_codec) {  // while the value itself is there, ops read that rather than its signs
      if (!last_plain || restores(tape_.codecs[codec])) continue;
      std::erase_if(uses, [&](std::uint32_t position) { return position <= *last_plain; });
    }
    std::erase_if(by_codec, [](const auto& form) { return form.second.empty(); });
    if (by_codec.empty() && anew.empty()) return;
    restored_at_.clear();
    for (const std::uint32_t position : anew) {
      std::ranges::copy(choice_.reruns.at(position), std::back_inserter(before_[position]));
      after_[position].push_back(on_tensor(ActionKind::drop, saved.tensor));
    }
    for (const auto& [codec, uses] : by_codec) pack(saved, codec, uses, reruns);
    std::erase_if(drops_[saved.uses.back().position], [&](const Action& drop) {
      return drop.form == Form{} && graph_[drop.tensor].storage == graph_[saved.tensor].storage;
    });
    after_[last_plain.value_or(saved.from)].push_back(on_tensor(ActionKind::drop, saved.tensor));
  }

  void add(const UnreadForm& unread) {
    const TensorId t = unread.tensor;
    if (cannot_pack(unread.codec, graph_, graph_[t]) || !saves(unread.codec, t)) return;
    const std::uint32_t codec = number_of(unread.codec);
    const auto is_its = [&](const Action& action) {
      return action.kind == ActionKind::drop && action.form == Form{} &&
             graph_[action.tensor].storage == graph_[t].storage;
    };
    const bool dies = std::erase_if(drops_[unread.from], is_its) > 0;
    std::vector<Action>& after = after_[unread.from];  // where the value is dropped for a form that is read
    after.insert(std::ranges::find_if(after, is_its), by_codec(ActionKind::pack, t, codec));
    if (dies) after.push_back(on_tensor(ActionKind::drop, t));
    before_[unread.until].push_back(by_codec(ActionKind::unpack, t, codec));
    before_[unread.until].push_back(drop_of(t, {Form::Kind::packed, codec}));
    after_[unread.until].push_back(drop_of(t, {Form::Kind::restored, codec}));
  }

  Tape build() && {
    for (std::size_t p = 0; p < model_.positions(); ++p) {
      tape_.actions.insert(tape_.actions.end(), before_[p].begin(), before_[p].end());
      tape_.actions.push_back(model_.computes[p]);
      for (const auto* actions : {&drops_[p], &after_[p]}) {  // what is dead makes room for packed forms
        tape_.actions.insert(tape_.actions.end(), actions->begin(), actions->end());
      }
    }
    return std::move(tape_);
  }

 private:
  std::uint32_t number_of(const Codec& codec) {
    const auto found = std::ranges::find(tape_.codecs, codec);
    if (found == tape_.codecs.end()) {
      tape_.codecs.push_back(codec);
      return static_cast<std::uint32_t>(tape_.codecs.size() - 1);
    }
    return static_cast<std::uint32_t>(found - tape_.codecs.begin());
  }

  /// What does not restore the value is for those that can do with it as it is.
  bool serves(const Codec& codec, TensorId t, const SavedUse& use) const {
    if (cannot_pack(codec, graph_, graph_[t]) || !saves(codec, t)) return false;
    const Op& op = graph_[use.op];
    return restores(codec) || (op.uses.empty() ? reads_packed(op, codec) : plimsoll::serves(codec, use.layer_use()));
  }

  bool saves(const Codec& codec, TensorId t) const { return packed_bytes(codec, graph_, graph_[t]) < graph_[t].bytes; }

  static Action drop_of(TensorId t, Form form) { return in_form(form, on_tensor(ActionKind::drop, t)); }

  void pack_after(std::uint32_t position, TensorId t, std::uint32_t codec) {
    after_[position].push_back(by_codec(ActionKind::pack, t, codec));
  }

  /// After the last forward that runs again from the value as it is before the packed form is needed. What several
  /// layers of a stage use at once is restored once, by one of their codecs.
  void pack(const SavedTensor& saved, std::uint32_t codec, const std::vector<std::uint32_t>& uses,
            const std::set<std::uint32_t>& reruns) {
    const TensorId t = saved.tensor;
    const Form packed{Form::Kind::packed, codec}, restored{Form::Kind::restored, codec};
    const auto needed = reruns.lower_bound(uses.front());
    const std::uint32_t from = needed == reruns.begin() ? saved.from : *std::prev(needed);
    pack_after(from, t, codec);
    std::vector<std::uint32_t> unpacked;  // the uses that cannot read it as it is
    std::ranges::copy_if(uses, std::back_inserter(unpacked), [&](std::uint32_t position) {
      const Op& op = graph_[model_.computes[position].op];
      const bool as_it_is = reads_packed(op, t, tape_.codecs[codec]) || reads_beside(op, t, tape_.codecs[codec]);
      return !as_it_is && restored_at_.insert(position).second;
    });
    std::optional<std::uint32_t> last;  // for which it is unpacked last
    for (std::size_t u = 0; u < unpacked.size(); ++u) {
      const bool is_there = u > 0 && unpacked[u] <= unpacked[u - 1] + choice_.stays;
      if (!is_there) before_[*(last = unpacked[u])].push_back(by_codec(ActionKind::unpack, t, codec));
      const bool stays = u + 1 < unpacked.size() && unpacked[u + 1] <= unpacked[u] + choice_.stays;
      if (!stays) after_[unpacked[u]].push_back(drop_of(t, restored));
    }
    if (last && unpacked.back() == uses.back()) {
      before_[*last].push_back(drop_of(t, packed));
    } else {
      after_[uses.back()].push_back(drop_of(t, packed));
    }
  }

  const Graph& graph_;
  const OffloadModel& model_;
  const PackingChoice& choice_;
  Tape tape_;
  std::vector<std::vector<Action>> before_, after_, drops_;  // by position
  std::set<std::uint32_t> restored_at_;                      // of the tensor that is added
};

CodecChoice with_overhead(const PackingChoice& choice, const OffloadModel& model) {
  return [inner = choice.codec, overhead = choice.overhead, &model](const SavedTensor& tensor, const SavedUse& use) {
    std::optional<Codec> chosen = inner(tensor, use);
    if (chosen && chosen->kind == CodecKind::quantize) chosen->overhead = overhead(model, use);
    return chosen;
  };
}

/// Signs are made anew from exact inputs of batch norms.
void refuse_anew(std::string_view strategy, const Graph& graph, const UsePattern& pattern, std::string_view text) {
  if (std::ranges::any_of(graph.ops, [](const Op& op) { return layer_of(op) == SavedBy::stage; })) {
    throw InputError(
        fmt::format("{}: relu=recompute runs ops of a graph again, and '{}' is a chain of stages: take relu=bit",
                    strategy, graph.name));
  }
  if (!pattern.names_all() && !pattern.names(SavedBy::bn) && !pattern.names(SavedBy::relu)) return;
  throw InputError(
      fmt::format("{}: relu=recompute takes signs from the inputs of batch norms, which must be kept unpacked, and "
                  "serves only ReLUs that are not named: leave {} out of tensors={}",
                  strategy,
                  pattern.names_all()          ? "all"
                  : pattern.names(SavedBy::bn) ? "bn"
                                               : "relu",
                  text));
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const Graph& graph, const OffloadModel& model) {
  std::vector<SavedTensor> saved;
  const auto uses_at = [&](const OffloadGap& gap) {
    const Action& reader = model.computes[gap.until];
    EXPECTS(reader.kind == ActionKind::run);
    const Op& op = graph[reader.op];
    SavedUse use{gap.until, SavedBy::checkpoint, false, reader.op};
    if (op.phase == Phase::forward) return std::vector{use};
    std::vector<SavedUse> of_layers;
    for (const InputUse& each : op.uses) {
      if (graph[each.tensor].storage != graph[gap.tensor].storage) continue;
      of_layers.push_back(
          {gap.until, each.use.by, each.use.is_result, reader.op, each.use.kernel, each.use.shape_only});
    }
    if (!of_layers.empty()) return of_layers;
    const Action& maker = model.computes[gap.made];
    use.by = layer_of(op);
    use.is_result = maker.kind == ActionKind::run && layer_of(graph[maker.op]) == use.by;
    use.kernel = use.by == SavedBy::conv ? kernel_of(graph, op) : 0;
    return std::vector{use};
  };
  std::vector<std::uint32_t> backwards{0};  // before a position
  for (const Action& compute : model.computes) {
    const bool is_one = compute.kind == ActionKind::run && graph[compute.op].phase != Phase::forward;
    backwards.push_back(backwards.back() + (is_one ? 1 : 0));
  }
  const auto runs_forward = [&](std::uint32_t position) {
    const Action& compute = model.computes[position];
    return compute.kind == ActionKind::run && graph[compute.op].phase == Phase::forward;
  };
  /// Made by a forward, and read after or by a backward; made anew within the backward, some time after.
  const auto waits = [&](const OffloadGap& gap) {
    if (gap.from < model.turn) return model.turn <= gap.until;
    return gap.made >= model.turn && runs_forward(gap.from) && gap.until > gap.from + soon &&
           backwards[gap.until + 1] > backwards[gap.from];
  };
  std::vector<std::size_t> open(graph.storages, 0);  // 1 + the saved tensor that lives in a storage
  for (const OffloadGap& gap : model.gaps) {         // by `from`
    if (gap.form != Form{}) continue;
    std::size_t& at = open[graph[gap.tensor].storage.index];
    const bool goes_on = at > 0 && gap.made < gap.from && saved[at - 1].uses.back().position == gap.from;
    if (goes_on) {
      std::ranges::copy(uses_at(gap), std::back_inserter(saved[at - 1].uses));
    } else if (waits(gap)) {
      saved.push_back({gap.tensor, gap.from, uses_at(gap)});
      at = saved.size();
    }
  }
  return saved;
}

std::int64_t rows_of(const Tensor& tensor) {
  std::int64_t values = 1;
  for (const std::int64_t d : tensor.shape) values *= d;
  return tensor.shape.empty() || tensor.shape.back() == 0 ? 0 : values / tensor.shape.back();
}

bool sums_over_rows(const Graph& graph, const Op& op, const Tensor& value) {
  if (!reads_packed(op, {.kind = CodecKind::rows})) return false;
  const auto of_weight = [&](TensorId t) { return graph[t].kind == TensorKind::parameter_gradient; };
  const auto has_as_many = [&](TensorId t) {
    return graph[t].kind == TensorKind::gradient && rows_of(graph[t]) == rows_of(value);
  };
  return std::ranges::any_of(op.outputs, of_weight) && std::ranges::any_of(op.inputs, has_as_many);
}

std::string UsePattern::refusal(std::string_view text) {
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    const bool is_layer = name == "all" || layer_with_kernel(name).has_value();
    if (is_layer && (which.empty() || which == use_as_input || which == use_as_result)) continue;
    return fmt::format("'{}' is neither a layer nor its .input or .output", term);
  }
  return {};
}

UsePattern::UsePattern(std::string_view text) {
  EXPECTS(refusal(text).empty());
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    const auto [layer, kernel] = layer_with_kernel(name).value_or(std::pair{SavedBy::other, std::int64_t{0}});
    terms_.push_back({.all = name == "all",
                      .layer = layer,
                      .kernel = kernel,
                      .inputs = which != use_as_result,
                      .results = which != use_as_input});
  }
}

bool UsePattern::matches(const SavedUse& use) const {
  return std::ranges::any_of(terms_, [&](const Term& term) {
    return (term.all ? use.by != SavedBy::checkpoint : term.layer == use.by) &&
           (term.kernel == 0 || term.kernel == use.kernel) && (use.is_result ? term.results : term.inputs);
  });
}

bool UsePattern::names_all() const {
  return std::ranges::any_of(terms_, &Term::all);
}

bool UsePattern::names(SavedBy layer) const {
  return std::ranges::any_of(terms_, [&](const Term& term) { return !term.all && term.layer == layer; });
}

std::string written_uses(std::span<const SavedTensor> saved) {
  std::set<std::string> uses;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      uses.insert(fmt::format("{}{}", name_of(use.by), use.is_result ? use_as_result : use_as_input));
    }
  }
  return fmt::format("{}", fmt::join(uses, ", "));
}

Tape packed_tape(const Graph& graph, const OffloadModel& model, std::span<const SavedTensor> saved,
                 const PackingChoice& choice, std::span<const UnreadForm> unread) {
  PackedTape tape(graph, model, choice);
  for (const SavedTensor& each : saved) tape.add(each);
  for (const UnreadForm& each : unread) tape.add(each);
  return std::move(tape).build();
}

std::vector<TapeOutcome> packed_tapes(const PartTask& task, std::string_view strategy,
                                      std::span<const std::optional<Bytes>> budgets, const Tape* before,
                                      const ChoiceOf& choice_of, const UnreadOf& unread_of) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  const Graph& graph = task.problem.graph;
  const std::vector<SavedTensor> saved = saved_tensors(graph, model);
  PackingChoice choice = choice_of(graph, saved);
  if (choice.overhead) choice.codec = with_overhead(choice, model);
  const std::vector<UnreadForm> unread = unread_of ? unread_of(graph, model) : std::vector<UnreadForm>{};
  Front pool;
  std::optional<PlannedTape> packed = simulated_tape(task, model, packed_tape(graph, model, saved, choice, unread));
  if (packed && choice.note) {
    const auto packs = std::ranges::count(packed->tape.actions, ActionKind::pack, &Action::kind);
    packed->note = choice.note(model, static_cast<std::size_t>(packs));
  }
  pool.add(std::move(packed));
  return pool.outcomes(budgets, fmt::format("{} has one schedule, whatever the budget", strategy));
}

bool has_channels_last(const Graph& graph) {
  const auto names_network = [](const auto& note) { return note.first == "network"; };
  if (std::ranges::any_of(graph.ops, [](const Op& op) { return layer_of(op) == SavedBy::stage; })) {
    return std::ranges::any_of(graph.source.notes, names_network);
  }
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || layer_of(op) != SavedBy::conv || op.inputs.size() < 2) continue;
    const std::vector<std::int64_t>&x = graph[op.inputs[0]].shape, &weight = graph[op.inputs[1]].shape;
    if (x.size() != 4 || weight.size() != 4) continue;
    return x[1] != weight[1] && x[3] == weight[2];  // height x width x in x out, else out x in x height x width
  }
  return false;
}

void refuse_if_unfit(std::string_view strategy, const Graph& graph, std::span<const SavedTensor> saved,
                     std::string_view text, const Codec& codec) {
  if (is_part_alone(graph)) return;
  const UsePattern pattern(text);
  std::optional<std::string> why;
  for (const SavedTensor& tensor : saved) {
    if (std::ranges::none_of(tensor.uses, [&](const SavedUse& use) { return pattern.matches(use); })) continue;
    const std::optional<std::string> cannot = cannot_pack(codec, graph, graph[tensor.tensor]);
    if (!cannot) return;
    if (!why) why = fmt::format("{} {}", strategy, *cannot);
  }
  if (!why && pattern.names_all()) return;  // nothing is saved
  throw InputError(why.value_or(fmt::format("{}: tensors={} matches no saved value of '{}'; there are {}", strategy,
                                            text, graph.name, written_uses(saved))));
}

ChoiceOf choice_by_pattern(std::string_view strategy, const Codec& codec, const PackedOptions& options) {
  const std::string text = options.tensors;
  const UsePattern pattern(text);
  const std::optional<Codec> relu = relu_codec(options);
  const bool of_layer = options.of_layer, anew = options.relu == ReluSigns::recompute;
  return [=, name = std::string(strategy)](const Graph& graph, std::span<const SavedTensor> saved) -> PackingChoice {
    refuse_if_unfit(name, graph, saved, text, codec);
    if (anew) refuse_anew(name, graph, pattern, text);
    PackingChoice made([=](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
      if (use.by == SavedBy::relu && use.is_result && !pattern.names(SavedBy::relu)) return relu;
      if (!pattern.matches(use)) return std::nullopt;
      Codec chosen = codec;
      if (of_layer) chosen.copy = static_cast<std::uint32_t>(&use - tensor.uses.data());
      return chosen;
    });
    if (anew) made.reruns = signs_anew(graph, saved, made.codec);
    return made;
  };
}

std::optional<Codec> relu_codec(const PackedOptions& options) {
  if (options.relu == ReluSigns::keep) return std::nullopt;
  return Codec{.kind = CodecKind::mask, .bits = options.relu == ReluSigns::byte ? 8U : 1U};
}

}  // namespace plimsoll
