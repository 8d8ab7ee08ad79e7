// Transforms that put another optimizer in Adam's place: `adafactor`, `adam8bit` and `galore`.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/names.h"
#include "sim/core/optimizer.h"
#include "sim/io/quantity.h"
#include "sim/model/problem.h"
#include "sim/ops/layers.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/policies/policies.h"
#include "strategies/transforms/smaller_problem.h"

namespace plimsoll {
namespace {

// What an optimizer keeps, in another form than Adam's two numbers for each of a parameter's: for transforms that take
// Adam's place.

/// A parameter that Adam trains, as its update in the problem has it.
struct TrainedByAdam {
  const Tensor& parameter;
  std::int64_t numbers = 0;  ///< of the parameter
  Bytes state;               ///< of each of Adam's two
  std::string_view dtype;    ///< of these
};

/// A tensor that is kept from one iteration to the next.
struct KeptState {
  std::string name;  ///< "<name> of <parameter>" in the graph
  Bytes bytes;
  std::string dtype;
};

/// What takes the place of Adam's states and update of one parameter.
struct ChangedStates {
  std::vector<KeptState> states;
  Bytes workspace = {};   ///< while it is updated
  Bytes also_moved = {};  ///< beside gradients (once), states (read and written) and parameters
  Flops flops = {};       ///< where they are no longer few beside the bytes
};

using StatesRule = std::function<std::variant<ChangedStates, std::string>(const TrainedByAdam&)>;

struct OtherOptimizer {
  std::string name;  ///< of the optimizer; its updates say so in their attribute `optimizer`
  StatesRule states;
  std::optional<KeptState> shared = {};  ///< by all updates, and changed by none: it lives with the first part
};

/// In the attributes of an update that is not the problem's optimizer's: its own, and the tensor that all share.
constexpr std::string_view optimizer_attribute = "optimizer", shared_state_attribute = "shared_state";

constexpr std::string_view copy_of_parameter = "fp32 copy of ", average_of_parameter = "average of ";

/// Of one update, what belongs to one of its parameters.
struct StatesOfOne {
  std::optional<TensorId> copy, average;
  std::vector<TensorId> adams;
};

class OptimizerChange {
 public:
  OptimizerChange(const Problem& problem, const OtherOptimizer& other) : other_(other), made_(problem) {}

  std::variant<Problem, std::string> run() {
    std::size_t updates = 0;
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      if (graph().ops[o].phase != Phase::update || !is_adams(graph().ops[o])) continue;
      if (std::optional<std::string> why = change(graph().ops[o])) return *std::move(why);
      ++updates;
    }
    if (updates == 0) return "it takes the place of Adam's updates, and there are none: give --optimizer adam";
    state_in_chain();
    std::vector<bool> keeps(graph().tensors.size(), true);
    for (const TensorId t : gone_) keeps[t.index] = false;
    keep_tensors(graph(), keeps);
    if (other_.shared) add_shared();
    return std::move(made_);
  }

 private:
  Graph& graph() { return made_.graph; }
  bool is_of(TensorId t, TensorKind kind) { return graph()[t].kind == kind; }

  TensorId add(const std::string& name, TensorKind kind, const KeptState& state) {
    graph().tensors.push_back({.name = name,
                               .kind = kind,
                               .bytes = state.bytes,
                               .storage = id_at<StorageId>(graph().storages++),
                               .shape = {},
                               .dtype = state.dtype});
    return id_at<TensorId>(graph().tensors.size() - 1);
  }

  /// By the names that states have where --optimizer made them; all of an update of one parameter.
  StatesOfOne states_of_one(const Op& update, TensorId parameter, bool is_only_one) {
    StatesOfOne found;
    for (const TensorId t : update.inputs) {
      if (!is_of(t, TensorKind::optimizer_state)) continue;
      const std::string &name = graph()[t].name, &of = graph()[parameter].name;
      if (name == std::string(copy_of_parameter) + of) {
        found.copy = t;
      } else if (name == std::string(average_of_parameter) + of) {
        found.average = t;
      } else if (is_only_one || name.ends_with(" of " + of)) {
        found.adams.push_back(t);
      }
    }
    return found;
  }

  /// Groups of parameters that others update stay as they are.
  bool is_adams(const Op& update) {
    const Optimizers all = made_.optimizers();
    return all.groups.empty() || all.of_group(group_of(graph(), update, all)) == Optimizer::adam;
  }

  std::string not_adams(const Op& update, const std::string& what) {
    return "'" + update.name + "' " + what + ": it takes the place of Adam's updates only (--optimizer adam)";
  }

  std::optional<std::string> change(Op& update) {
    const auto named = std::ranges::find(update.attributes, optimizer_attribute, [](const auto& a) { return a.first; });
    if (named != update.attributes.end() && named->second != written(Optimizer::adam)) {
      return not_adams(update, "is one of " + named->second);
    }
    std::vector<TensorId> parameters, gradients, states;
    for (const TensorId t : update.inputs) {
      if (is_of(t, TensorKind::parameter_gradient)) gradients.push_back(t);
      const bool is_updated = std::ranges::find(update.mutates, t) != update.mutates.end();
      if (is_of(t, TensorKind::parameter) && is_updated) parameters.push_back(t);
    }
    const Bytes before = moved_by(update);
    ChangedStates sum;
    for (const TensorId parameter : parameters) {
      const StatesOfOne old = states_of_one(update, parameter, parameters.size() == 1);
      std::variant<ChangedStates, std::string> changed = changed_states(update, parameter, old);
      if (std::string* why = std::get_if<std::string>(&changed)) return std::move(*why);
      const auto& given = std::get<ChangedStates>(changed);
      std::vector<TensorId> own;
      if (old.copy) own.push_back(*old.copy);
      for (const KeptState& state : given.states) {
        own.push_back(add(state.name + " of " + graph()[parameter].name, TensorKind::optimizer_state, state));
      }
      if (old.average) {
        own.push_back(*old.average);
        sum.also_moved += graph()[*old.average].bytes;  // the parameter or its copy, once more
      }
      for (const TensorId t : own) kept_[parameter] += graph()[t].bytes;
      states.insert(states.end(), own.begin(), own.end());
      gone_.insert(gone_.end(), old.adams.begin(), old.adams.end());
      sum.workspace = std::max(sum.workspace, given.workspace);
      sum.also_moved += given.also_moved;
      sum.flops = Flops{sum.flops.count + given.flops.count};
    }
    return take(update, parameters, gradients, states, sum, before);
  }

  std::variant<ChangedStates, std::string> changed_states(const Op& update, TensorId t, const StatesOfOne& old) {
    const Tensor& parameter = graph()[t];
    const std::string dtype = dtype_of(graph(), parameter);
    if (old.adams.size() != 2 || graph()[old.adams[0]].bytes != graph()[old.adams[1]].bytes) {
      return not_adams(update,
                       "keeps " + std::to_string(old.adams.size()) + " states for '" + parameter.name + "', not two");
    }
    const std::optional<std::int64_t> each = bytes_of_dtype(dtype);
    if (!each) {
      return "the number of elements of '" + parameter.name + "' is not known, whose dtype is '" + dtype + "'";
    }
    const Tensor& state = graph()[old.adams[0]];
    return other_.states({parameter, parameter.bytes.count / *each, state.bytes, dtype_of(graph(), state)});
  }

  Bytes moved_by(const Op& update) {
    if (update.bytes_moved) return *update.bytes_moved;
    Bytes moved;
    for (const auto* list : {&update.inputs, &update.mutates}) {
      for (const TensorId t : *list) moved += graph()[t].bytes;
    }
    return moved;
  }

  /// A time that was measured follows the bytes, which is what an update is bound by.
  std::optional<std::string> take(Op& update, const std::vector<TensorId>& parameters,
                                  const std::vector<TensorId>& gradients, const std::vector<TensorId>& states,
                                  const ChangedStates& sum, Bytes before) {
    const bool computes = sum.flops.count > 0;
    if (update.duration && computes) {
      return "'" + update.name + "' has a time of its own, and how long " + other_.name + "'s products take is unknown";
    }
    const Op made =
        update_op(graph(), made_.states.value_or(States::by_dtype), update.name, parameters, gradients, states);
    update.inputs = made.inputs;
    update.mutates = made.mutates;
    update.bytes_moved = *made.bytes_moved + sum.also_moved;
    if (made_.clips_gradients) update.bytes_moved = *update.bytes_moved + clipping_bytes_moved(graph(), gradients);
    update.workspace = sum.workspace;
    if (computes) update.flops = Flops{update.flops.value_or(Flops{}).count + sum.flops.count};
    if (update.duration && before > Bytes{0}) {
      const double share = static_cast<double>(update.bytes_moved->count) / static_cast<double>(before.count);
      update.duration = share * *update.duration;
    }
    std::erase_if(update.attributes, [](const auto& a) { return a.first == optimizer_attribute; });
    update.attributes.emplace_back(optimizer_attribute, other_.name);
    if (other_.shared) update.attributes.emplace_back(shared_state_attribute, other_.shared->name);
    return std::nullopt;
  }

  /// Parameters of the graph are those of the chain, in their order.
  void state_in_chain() {
    if (!made_.chain) return;
    std::size_t next = 0;
    for (std::size_t t = 0; t < graph().tensors.size() && next < made_.chain->parameters.size(); ++t) {
      if (graph().tensors[t].kind != TensorKind::parameter) continue;
      const auto found = kept_.find(id_at<TensorId>(t));
      if (found != kept_.end()) made_.chain->parameters[next].states = found->second;
      ++next;
    }
  }

  /// As a parameter that nothing trains, beside those of the first part.
  void add_shared() {
    add(other_.shared->name, TensorKind::parameter, *other_.shared);
    if (!made_.chain) return;
    made_.chain->parameters.push_back(
        {.name = other_.shared->name, .bytes = other_.shared->bytes, .dtype = other_.shared->dtype, .trained = false});
  }

  const OtherOptimizer& other_;
  Problem made_;
  std::vector<TensorId> gone_;
  std::map<TensorId, Bytes> kept_;  // by parameter: its states
};

/// The problem with that optimizer in Adam's place, or in one sentence why there is none: no updates, or none of
/// Adam's.
std::variant<Problem, std::string> with_optimizer(const Problem& problem, const OtherOptimizer& other) {
  return OptimizerChange(problem, other).run();
}

struct AdafactorOptions {
  bool momentum = false;
};

/// What PyTorch's loop over one parameter moves beside its gradient (once), its states and itself, in numbers of the
/// parameter: its norm 1, the gradient's norms 2 by row and column, the estimate of the variance (made 1, divided 2,
/// clamped 2, rooted 2, times the gradient 3), its norm 1; less what the rest counts already. As many for a vector.
constexpr std::int64_t moved_by_program = 14, moved_by_momentum = 3;

class FactoredStates {
 public:
  explicit FactoredStates(bool momentum) : momentum_(momentum) {}

  std::variant<ChangedStates, std::string> operator()(const TrainedByAdam& of) const {
    const std::vector<std::int64_t>& shape = of.parameter.shape;
    if (shape.empty() && of.numbers != 1) {
      return "the shape of '" + of.parameter.name +
             "' is not known: only graphs that state the shapes of parameters have rows and columns";
    }
    const std::int64_t each = of.numbers > 0 ? of.state.count / of.numbers : 0;
    const auto state = [&](const char* name, std::int64_t numbers) {
      return KeptState{name, Bytes{each * numbers}, std::string(of.dtype)};
    };
    ChangedStates made;
    if (shape.size() > 1) {
      made.states = {state("row variances", of.numbers / shape.back()),
                     state("column variances", of.numbers / shape[shape.size() - 2])};
      made.workspace = Bytes{each * of.numbers};
    } else {
      made.states = {state("variances", of.numbers)};
      made.workspace = Bytes{2 * each * of.numbers};
    }
    if (momentum_) made.states.push_back(state("momentum", of.numbers));
    const std::int64_t moved = moved_by_program + (momentum_ ? moved_by_momentum : 0);
    made.also_moved = Bytes{moved * each * of.numbers};
    return made;
  }

 private:
  bool momentum_;
};

std::variant<Problem, std::string> adafactor(const Problem& problem, const AdafactorOptions& options) {
  return with_optimizer(problem, {.name = "adafactor", .states = FactoredStates(options.momentum)});
}

constexpr auto adafactor_options = options_of<AdafactorOptions>(option_of<&AdafactorOptions::momentum>({
    .name = "momentum",
    .words = "off on",
    .help = "on: also keeps the mean of updates, one number for each number of the parameter",
}));

struct Adam8bitOptions {
  std::string fp32 = "none";
  std::int64_t least = 4096;
};

constexpr std::int64_t block_numbers = 256, bytes_of_scale = 4;
constexpr Bytes both_tables{2 * 256 * 4};

/// Parameters that an op of this kind reads, for its rows.
std::set<std::string> embedding_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || layer_of(op) != SavedBy::embedding) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) names.insert(graph[t].name);
    }
  }
  return names;
}

/// Names of the parameters whose states stay as they are; or why there are none.
std::variant<std::set<std::string>, std::string> unchanged_names(const Graph& graph, std::string_view which) {
  std::set<std::string> names;
  if (which == "none") return names;
  if (which == "embeddings") {
    names = embedding_names(graph);
    if (names.empty()) return "'" + graph.name + "' has no op of kind embedding: name the parameters, as in fp32=wte";
    return names;
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter && matches(which, tensor.name)) names.insert(tensor.name);
  }
  if (names.empty()) return "no parameter of '" + graph.name + "' is '" + std::string(which) + "'";
  return names;
}

ChangedStates states_in_8_bits(const TrainedByAdam& of) {
  const std::int64_t blocks = (of.numbers + block_numbers - 1) / block_numbers;
  const Bytes each{of.numbers + bytes_of_scale * blocks};
  return {.states = {{"state 0", each, "uint8"}, {"state 1", each, "uint8"}}};
}

ChangedStates states_as_they_are(const TrainedByAdam& of) {
  return {.states = {{"state 0", of.state, std::string(of.dtype)}, {"state 1", of.state, std::string(of.dtype)}}};
}

std::variant<Problem, std::string> adam8bit(const Problem& problem, const Adam8bitOptions& options) {
  const auto named = unchanged_names(problem.graph, options.fp32);
  if (const std::string* why = std::get_if<std::string>(&named)) return *why;
  const auto& unchanged = std::get<std::set<std::string>>(named);
  const std::int64_t least = options.least;
  const auto rule = [&](const TrainedByAdam& of) -> std::variant<ChangedStates, std::string> {
    const bool stays = of.numbers < least || unchanged.contains(of.parameter.name);
    return stays ? states_as_they_are(of) : states_in_8_bits(of);
  };
  return with_optimizer(problem, {"adam8bit", rule, KeptState{"tables of adam8bit", both_tables, "float32"}});
}

constexpr auto adam8bit_options =
    options_of<Adam8bitOptions>(option_of<&Adam8bitOptions::fp32>({
                                    .name = "fp32",
                                    .values = "none, embeddings or a pattern of names such as *.wte",
                                    .help = "parameters that keep their states as they are; embeddings: parameters "
                                            "that an op of kind 'embedding' reads",
                                    .allowed = [](std::string_view text) { return !text.empty(); },
                                }),
                                option_of<&Adam8bitOptions::least>({
                                    .name = "least",
                                    .least = 0,
                                    .most = 1'000'000'000'000,
                                    .values = "a whole number from 0",
                                    .help = "parameters of fewer numbers keep their states as they are",
                                }));

struct GaloreOptions {
  std::int64_t rank = 4;
  std::int64_t every = 200;
  std::string matrices = "*";
  std::uint32_t bits = 32;
  bool refreshes = false;
};

struct ProjectedMatrix {
  std::int64_t longer, shorter, rank;

  std::int64_t numbers() const { return longer * shorter; }
  std::int64_t projected() const { return longer * rank; }
};

/// The projected gradient, its square's root and their quotient; the update twice, before and after it is scaled.
std::int64_t usual_workspace(const ProjectedMatrix& m) {
  return 3 * m.projected() + 2 * m.numbers();
}

/// A copy, which the decomposition overwrites, and U, S and V.
std::int64_t decomposition_workspace(const ProjectedMatrix& m) {
  return 2 * m.numbers() + m.shorter + m.shorter * m.shorter;
}

double decomposition_flops(const ProjectedMatrix& m) {
  const auto a = static_cast<double>(m.longer), b = static_cast<double>(m.shorter);
  return 6 * a * b * b + 20 * b * b * b;
}

/// To the space and back.
double projection_flops(const ProjectedMatrix& m) {
  return 4 * static_cast<double>(m.numbers()) * static_cast<double>(m.rank);
}

/// What the program moves op by op, beside the gradient, the parameter and what is kept: the projected gradient made
/// and read, 13 numbers for each of its in Adam's ops, the update made, scaled and read.
std::int64_t moved_by_galore(const ProjectedMatrix& m) {
  return 15 * m.projected() + 4 * m.numbers();
}

class ProjectedStates {
 public:
  explicit ProjectedStates(const GaloreOptions& options)
      : matrices_(options.matrices),
        rank_(options.rank),
        every_(options.every),
        in_8_bits_(options.bits == 8),
        refreshes_(options.refreshes) {}

  std::variant<ChangedStates, std::string> operator()(const TrainedByAdam& of) {
    const std::vector<std::int64_t>& shape = of.parameter.shape;
    if (shape.empty() && of.numbers != 1) {
      return "the shape of '" + of.parameter.name + "' is not known: only graphs that state it have matrices";
    }
    const std::string dtype(of.dtype);
    if (shape.size() != 2 || !matches(matrices_, of.parameter.name)) {
      return ChangedStates{.states = {{"state 0", of.state, dtype}, {"state 1", of.state, dtype}}};
    }
    const ProjectedMatrix m{std::max(shape[0], shape[1]), std::min(shape[0], shape[1]), rank_};
    if (rank_ > m.shorter) {
      return fmt::format("rank {} is larger than '{}', a matrix of {} x {}: leave it out by matrices=", rank_,
                         of.parameter.name, shape[0], shape[1]);
    }
    const std::int64_t each = of.state.count / of.numbers;
    note(m, of, each);
    const Bytes state = in_8_bits_ ? state_in_8_bits(m.projected(), each) : Bytes{each * m.projected()};
    const std::string kept = in_8_bits_ ? "uint8" : dtype;
    const std::int64_t usual = usual_workspace(m), refresh = std::max(usual, decomposition_workspace(m));
    return ChangedStates{
        .states = {{"projected state 0", state, kept},
                   {"projected state 1", state, kept},
                   {"projection", Bytes{each * m.shorter * rank_}, dtype}},
        .workspace = Bytes{each * (refreshes_ ? refresh : usual)},
        .also_moved = Bytes{each * moved_by_galore(m)},
        .flops = Flops{projection_flops(m) + decomposition_flops(m) / static_cast<double>(refreshes_ ? 1 : every_)}};
  }

  std::size_t matrices() const { return count_; }

  std::string text() const {
    return fmt::format(
        "galore projects {} matrices to rank {}; one step in {} decomposes them and needs up to {} more, other steps "
        "up to {}: this is {}; galore|backward_updates saves {} of gradients",
        count_, rank_, every_, format_bytes(spike_), format_bytes(usual_),
        refreshes_ ? "such a step" : "a step of mean time and of the others' memory",
        format_bytes(gradients_ - largest_gradient_));
  }

 private:
  static Bytes state_in_8_bits(std::int64_t numbers, std::int64_t each) {
    return numbers < 4096 ? Bytes{each * numbers} : Bytes{numbers + 4 * ((numbers + 255) / 256)};
  }

  void note(const ProjectedMatrix& m, const TrainedByAdam& of, std::int64_t each) {
    ++count_;
    usual_ = std::max(usual_, Bytes{each * usual_workspace(m)});
    spike_ = std::max(spike_, Bytes{each * decomposition_workspace(m)});
    gradients_ += of.parameter.bytes;
    largest_gradient_ = std::max(largest_gradient_, of.parameter.bytes);
  }

  std::string_view matrices_;
  std::int64_t rank_, every_;
  bool in_8_bits_, refreshes_;
  std::size_t count_ = 0;
  Bytes usual_, spike_, gradients_, largest_gradient_;
};

std::variant<Problem, std::string> galore(const Problem& problem, const GaloreOptions& options) {
  ProjectedStates states(options);
  std::variant<Problem, std::string> made =
      with_optimizer(problem, {.name = "galore", .states = [&](const TrainedByAdam& of) { return states(of); }});
  Problem* changed = std::get_if<Problem>(&made);
  if (changed == nullptr) return made;
  if (states.matrices() == 0) {
    return fmt::format("no matrix of '{}' is '{}'", problem.graph.name, options.matrices);
  }
  changed->notes.push_back(states.text());
  return made;
}

constexpr auto galore_options = options_of<GaloreOptions>(
    option_of<&GaloreOptions::rank>({
        .name = "rank",
        .least = 1,
        .most = 1'000'000'000,
        .values = "a whole number from 1",
        .help = "rows or columns that gradients are projected to",
    }),
    option_of<&GaloreOptions::every>({
        .name = "every",
        .least = 1,
        .most = 1'000'000'000,
        .values = "a whole number from 1",
        .help = "number of steps between decompositions",
    }),
    option_of<&GaloreOptions::matrices>({
        .name = "matrices",
        .values = "a pattern of names such as *.weight.*",
        .help = "parameters of two dimensions that are projected; the others keep Adam's states",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }),
    option_of<&GaloreOptions::bits>({
        .name = "bits",
        .words = "32 8",
        .help = "8: projected states are packed as in adam8bit",
    }),
    option_of<&GaloreOptions::refreshes>({
        .name = "step",
        .words = "mean refresh",
        .help = "mean: the time of a decomposition spread over the steps between two, its memory left out; refresh: "
                "the step that decomposes",
    }));

}  // namespace

// The transform `adafactor`: of a matrix's squared gradients only the means of rows and columns are kept.
// Numbers of the states: rows + columns for each matrix of the last two dimensions, as in the programs of PyTorch and
// fairseq; n for a parameter of one dimension; n more with momentum.
// Source: Shazeer, Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018.
extern constinit const StrategyInfo adafactor_strategy{
    .name = "adafactor",
    .family = Family::transform,
    .summary = "keeps row and column means of squared gradients instead of Adam's two states",
    .source = "Shazeer and Stern, 'Adafactor: adaptive learning rates with sublinear memory cost', ICML 2018",
    .needs_updates = true,
    .needs_shapes = true,
    .options = adafactor_options,
    .kind = TransformStrategy{.transform = by_options<adafactor>},
};

// The transform `adam8bit`: Adam whose two states are kept in 8 bits a number, in blocks of 256 that share a scale.
// Bytes of the states of a parameter of n numbers: 2 n + 8 ceil(n / 256) from 4096 numbers on, else 8 n; and two tables
// of 256 numbers for all parameters together.
// Source: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022; sizes as
// in the program bitsandbytes.
extern constinit const StrategyInfo adam8bit_strategy{
    .name = "adam8bit",
    .family = Family::transform,
    .summary = "keeps Adam's two states in 8 bits a number, in blocks of 256 that share a scale",
    .source = "Dettmers et al., '8-bit optimizers via block-wise quantization', ICLR 2022",
    .needs_updates = true,
    .options = adam8bit_options,
    .kind = TransformStrategy{.transform = by_options<adam8bit>},
};

// The transform `galore`: Adam's states live in a space of `rank` rows or columns, which gradients of matrices are
// projected to; the space is found anew by a singular value decomposition every so many steps.
// Numbers that are kept for a matrix: 2 max r + min r, max and min its longer and shorter side.
// Source: Zhao, Zhang, Chen, Wang, Anandkumar, Tian, "GaLore: memory-efficient LLM training by gradient low-rank
// projection", ICML 2024, and its authors' program for what an update works in. Operations of the decomposition:
// Golub, Van Loan, "Matrix computations", 4th edition, figure 8.6.1 (R-SVD).
extern constinit const StrategyInfo galore_strategy{
    .name = "galore",
    .family = Family::transform,
    .summary = "keeps Adam's states in a low-rank space to which gradients of matrices are projected",
    .source = "Zhao et al., 'GaLore: memory-efficient LLM training by gradient low-rank projection', ICML 2024",
    .needs_updates = true,
    .needs_shapes = true,
    .options = galore_options,
    .kind = TransformStrategy{.transform = by_options<galore>},
};

}  // namespace plimsoll
