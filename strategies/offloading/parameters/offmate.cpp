#include "strategies/offloading/parameters/offmate.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/parameters/demand_layering.h"
#include "strategies/offloading/updates/placed_updates.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_cells = 4000;  // groups x computes
constexpr double seconds_for_one = 60;

/// Parameters with the same uses, whose gradients are complete at the same position.
struct BoundGroup {
  double parameters = 0, states = 0, gradients = 0;  ///< bytes
  double on_device = 0, on_host = 0;                 ///< seconds that their updates take there
  bool trained = false;
};

/// What tells groups apart: the positions that read them, those between which the gradient is made, and whether its
/// memory counts: that of an update with several gradients does not, since some may leave before others are made.
struct Places {
  std::vector<std::size_t> uses;
  std::size_t made = 0, complete = 0;
  bool counts = false;
  friend auto operator<=>(const Places&, const Places&) = default;
};

Places places_of(const Graph& graph, const OffloadModel& model, const std::vector<TensorId>& parameters,
                 const std::vector<TensorId>& gradients) {
  Places places;
  std::map<TensorId, std::pair<std::size_t, std::size_t>> span;  // first and last maker
  for (std::size_t p = 0; p < model.positions(); ++p) {
    const Op& op = graph[model.computes[p].op];
    const auto reads = [&](TensorId t) { return std::ranges::find(op.inputs, t) != op.inputs.end(); };
    if (std::ranges::any_of(parameters, reads)) places.uses.push_back(p);
    for (const TensorId t : op.outputs) {
      if (std::ranges::find(gradients, t) != gradients.end()) span.try_emplace(t, p, p).first->second.second = p;
    }
  }
  places.counts = span.size() == 1;
  places.made = places.complete = model.positions();
  for (const auto& [gradient, makers] : span) {
    places.made = std::min(places.made, makers.first);
    places.complete = std::min(places.complete, makers.second);
  }
  return places;
}

struct OffmateOptions {
  std::optional<std::uint32_t> lead;
  std::int64_t steps = 8;
  bool overlap = true;
};

/// Parameters that share a fate: those of an update, or one that is not trained.
struct Group {
  std::optional<OpId> update;
  std::vector<TensorId> parameters;
  Bytes bytes;
};

/// Which of the groups that may be streamed are, for a share of their bytes.
enum class Order : std::uint8_t { spread, largest_first, last_used_first };

/// What is chosen: the first updates of this share of the bytes on the host, and of what may then be streamed this
/// share.
struct Choice {
  std::int64_t on_host = 0, streamed = 0;  ///< steps
  Order order = Order::spread;
  std::uint32_t lead = 1;
};

class Offmate {
 public:
  Offmate(const PartTask& task, const OffmateOptions& options, const Tape* before)
      : task_(task),
        graph_(task.problem.graph),
        tape_(tape_to_update(task, before, "offmate", false)),
        copies_{.overlaps_backward = options.overlap},
        steps_(options.steps) {
    std::set<TensorId> trained;
    for (const OpId op : updates_by_gradient(task.problem, tape_)) {
      Group& group = updated_.emplace_back(Group{op, {}, {}});
      for (const TensorId t : graph_[op].mutates) {
        if (graph_[t].kind != TensorKind::parameter) continue;
        add(group, t);
        trained.insert(t);
      }
    }
    read_ = parameters_read(task.problem, tape_);
    for (const TensorId t : read_) {
      if (!trained.contains(t)) add(frozen_.emplace_back(), t);
    }
    add_plans(options);
  }

  const Front& pool() const { return pool_; }
  const Tape& tape() const { return tape_; }

 private:
  void add(Group& group, TensorId t) const {
    group.parameters.push_back(t);
    group.bytes += graph_[t].bytes;
  }

  void add_plans(const OffmateOptions& options) {
    std::vector<std::uint32_t> leads{1, 2, 4};
    if (options.lead) leads = {*options.lead};
    const std::int64_t most = updated_.empty() ? 0 : steps_;
    for (std::int64_t on_host = 0; on_host <= most; ++on_host) {
      add_plan({on_host, 0, Order::spread, 0});
      for (std::int64_t streamed = 1; streamed <= steps_; ++streamed) {
        for (const Order order : {Order::spread, Order::largest_first, Order::last_used_first}) {
          for (const std::uint32_t lead : leads) add_plan({on_host, streamed, order, lead});
        }
      }
    }
  }

  /// Of each group, in order, whether it is in a share of the bytes: the first ones, or evenly spread.
  std::vector<bool> share_of(std::span<const Group* const> groups, std::int64_t share, bool spread) const {
    double all = 0, passed = 0, taken = 0;
    for (const Group* group : groups) all += static_cast<double>(group->bytes.count);
    const double part = static_cast<double>(share) / static_cast<double>(steps_);
    std::vector<bool> chosen;
    for (const Group* group : groups) {
      const auto bytes = static_cast<double>(group->bytes.count);
      passed += bytes;
      // As many as bring what is taken nearest to the share of what has passed, or to that of all.
      const double wanted = spread ? part * passed : part * all;
      chosen.push_back(share > 0 && taken + bytes / 2 <= wanted);
      if (share == steps_) chosen.back() = true;
      if (chosen.back()) taken += bytes;
    }
    return chosen;
  }

  void add_plan(const Choice& choice) {
    std::vector<const Group*> trained, streamable;
    for (const Group& group : updated_) trained.push_back(&group);
    const std::vector<bool> on_host = share_of(trained, choice.on_host, false);
    std::vector<UpdateGroup> placed{{{}, UpdateSite::host}, {{}, UpdateSite::device}};
    for (std::size_t g = 0; g < updated_.size(); ++g) {
      placed[on_host[g] ? 0 : 1].ops.push_back(*updated_[g].update);
      if (on_host[g]) streamable.push_back(&updated_[g]);
    }
    for (const Group& group : frozen_) streamable.push_back(&group);
    if (choice.streamed > 0 && streamable.empty()) return;
    const auto first_use = [&](const Group* group) {
      return std::ranges::find(read_, group->parameters.front()) - read_.begin();
    };
    if (choice.order == Order::last_used_first) {
      std::ranges::stable_sort(streamable, std::ranges::greater(), first_use);
    } else {
      std::ranges::stable_sort(streamable, {}, first_use);
    }
    if (choice.order == Order::largest_first)
      std::ranges::stable_sort(streamable, std::ranges::greater(), &Group::bytes);
    const std::vector<bool> streams = share_of(streamable, choice.streamed, choice.order == Order::spread);
    std::set<TensorId> chosen;
    for (std::size_t g = 0; g < streamable.size(); ++g) {
      if (streams[g]) chosen.insert(streamable[g]->parameters.begin(), streamable[g]->parameters.end());
    }
    StreamedParameters streamed{.parameters = {}, .lead = choice.lead};
    for (const TensorId t : read_) {
      if (chosen.contains(t)) streamed.parameters.push_back(t);
    }
    if (!made_.insert({choice.lead, streamed.parameters, placed[0].ops}).second) return;
    Tape tape = with_streamed_parameters(task_.problem, tape_, streamed);
    pool_.add(simulated(task_, with_updates(task_.problem, std::move(tape), placed, copies_)));
  }

  const PartTask& task_;
  const Graph& graph_;
  Tape tape_;
  UpdateCopies copies_;
  std::int64_t steps_;
  std::vector<TensorId> read_;  // parameters, by first use
  std::vector<Group> updated_;  // in the order in which their gradients are complete
  std::vector<Group> frozen_;   // by first use
  std::set<std::tuple<std::uint32_t, std::vector<TensorId>, std::vector<OpId>>> made_;  // what has been simulated
  Front pool_;
};

constexpr auto offmate_options = options_of<OffmateOptions>(
    option_of<&OffmateOptions::lead>({
        .name = "lead",
        .least = 0,
        .most = 1'000'000,
        .values = "auto or a whole number",
        .help = "how many layers ahead copying of streamed parameters starts: 0 only when needed, 1 double buffering, "
                "2 triple; auto: 1, 2 or 4, whichever is the fastest within the budget",
    }),
    option_of<&OffmateOptions::steps>({
        .name = "steps",
        .least = 1,
        .most = 100,
        .help = "resolution of the shares of updates on the host and of streamed parameters: both are tried in steps "
                "of 1/steps",
    }),
    option_of<&OffmateOptions::overlap>({
        .name = "overlap",
        .words = "off on",
        .values = "on or off",
        .help = "on: an update on the host begins as soon as its gradient has arrived; off: after the whole backward",
    }));

std::vector<TapeOutcome> offmate_tapes(const PartTask& task, const OffmateOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Offmate offmate(task, options, before);
  std::vector<TapeOutcome> outcomes =
      offmate.pool().outcomes(budgets, "every choice of shares on the host needs more memory");
  if (before != nullptr) return outcomes;  // the passes together have no bound
  const OffmateBound bound(task, offmate.tape(), options.overlap);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    PlannedTape* made = std::get_if<PlannedTape>(&outcomes[b]);
    if (made != nullptr) made->gap = bound.gap(budgets[b], made->makespan);
  }
  return outcomes;
}

std::vector<Bytes> offmate_candidates(const PartTask& task, const OffmateOptions& options) {
  return Offmate(task, options, nullptr).pool().budgets();
}

}  // namespace

struct OffmateBound::Program {
  Program(const PartTask& task, OffloadModel offload_model, bool overlaps)
      : problem(task.problem), graph(problem.graph), model(std::move(offload_model)), overlaps_backward(overlaps) {
    collect_groups(task);
    if (groups.size() * model.positions() > most_cells) return;
    slots = 2 * model.positions() + 1;
    unit_bytes = 1;
    for (const auto& [places, group] : groups) unit_bytes = std::max(unit_bytes, group.parameters / 100);
    for (const Seconds time : model.time) unit_time = std::max(unit_time, time.value / 10);
    if (unit_time <= 0) unit_time = 1;
    add_durations();
    for (const auto& [places, group] : groups) add_group(places, group);
    add_capacities();
    relaxation = std::make_unique<Relaxation>(program, seconds_for_one);
  }

  std::optional<Seconds> least(std::optional<Bytes> budget) {
    if (!relaxation) return std::nullopt;
    for (std::size_t p = 0; p < memory_rows.size(); ++p) {
      const double room = budget ? static_cast<double>((*budget - model.memory[p]).count) + held[p] : unbounded;
      relaxation->set_upper(memory_rows[p], room / unit_bytes);
    }
    const std::optional<std::vector<double>> values = relaxation->solve();
    if (!values) return std::nullopt;
    double sum = 0;
    for (const std::size_t duration : durations) sum += (*values)[duration];
    return Seconds{sum * unit_time};
  }

  void collect_groups(const PartTask& task) {
    const DeviceId device = task.part().device;
    const std::optional<MemoryId> host_of_device = memory_at(problem.platform, device, place::host);
    held = std::vector<double>(model.positions(), 0);
    std::vector<bool> trained(graph.storages, false);
    Tape computes;
    computes.actions = model.computes;
    for (const OpId op : updates_by_gradient(problem, computes)) {
      std::vector<TensorId> parameters, gradients;
      BoundGroup added{.trained = true};
      for (const TensorId t : graph[op].inputs) {
        const auto bytes = static_cast<double>(graph[t].bytes.count);
        if (graph[t].kind == TensorKind::parameter) {
          parameters.push_back(t);
          trained[graph[t].storage.index] = true;
          added.parameters += bytes;
        } else if (graph[t].kind == TensorKind::optimizer_state) {
          added.states += bytes;
        } else {
          gradients.push_back(t);
          added.gradients += bytes;
        }
      }
      added.on_device = duration_on(problem, op, device, Saving::keep).value;
      added.on_host = seconds_on_host(problem, op, *host_of_device)->value;
      note_gradients(gradients);
      join(places_of(graph, model, parameters, gradients), added);
    }
    for (const TensorId t : parameters_read(problem, computes)) {
      if (trained[graph[t].storage.index]) continue;
      join(places_of(graph, model, {t}, {}), {.parameters = static_cast<double>(graph[t].bytes.count)});
    }
  }

  void join(const Places& places, const BoundGroup& added) {
    BoundGroup& group = groups[places];
    group.parameters += added.parameters;
    group.states += added.states;
    group.gradients += added.gradients;
    group.on_device += added.on_device;
    group.on_host += added.on_host;
    group.trained |= added.trained;
  }

  /// What the model's memory counts of new gradients.
  void note_gradients(const std::vector<TensorId>& gradients) {
    if (problem.gradients == Gradients::existing) return;
    for (const TensorId gradient : gradients) {
      bool exists = false;
      for (std::size_t p = 0; p < model.positions(); ++p) {
        const std::vector<TensorId>& outputs = graph[model.computes[p].op].outputs;
        exists |= std::ranges::find(outputs, gradient) != outputs.end();
        if (exists) held[p] += static_cast<double>(graph[gradient].bytes.count);
      }
    }
  }

  std::size_t variable(double upper = unbounded, double cost = 0) {
    return program.variable({.cost = cost, .lower = 0, .upper = upper});
  }

  static std::size_t before(std::size_t p) { return 2 * p; }
  static std::size_t during(std::size_t p) { return 2 * p + 1; }
  std::size_t end() const { return slots - 1; }

  void add_durations() {
    for (std::size_t s = 0; s < slots; ++s) {
      durations.push_back(variable(unbounded, 1));
      if (s % 2 == 1) program.variables.back().lower = model.time[s / 2].value / unit_time;
    }
    in.resize(slots);
    out.resize(slots);
    host.resize(slots);
    memory.resize(model.positions());
  }

  void add_group(const Places& places, const BoundGroup& group) {
    const std::size_t resident = variable(1), updated = variable(1);  // r and d
    const double bytes = group.parameters / unit_bytes;
    for (std::size_t p = 0; p < model.positions(); ++p) {
      const bool is_used = std::ranges::binary_search(places.uses, p);
      held[p] += group.states + (is_used ? 0 : group.parameters);
      if (!is_used) memory[p].emplace_back(resident, bytes);
      if (group.states > 0) memory[p].emplace_back(updated, group.states / unit_bytes);
    }
    std::optional<std::size_t> last;
    for (const std::size_t use : places.uses) {
      add_arrival(resident, bytes, last, use);
      last = use;
    }
    if (!group.trained) return;
    program.row({{updated, 1}, {resident, -1}}, -unbounded, 0);
    if (bytes > 0) {
      in[end()].emplace_back(resident, bytes);
      in[end()].emplace_back(updated, -bytes);
    }
    device_updates.emplace_back(updated, group.on_device / unit_time);
    add_departure(updated, places, group);
  }

  /// 1 - r of the parameters comes in after one use and before the next, but for what stays.
  void add_arrival(std::size_t resident, double bytes, std::optional<std::size_t> from, std::size_t use) {
    LinearProgram::Terms all{{resident, 1}};
    std::optional<std::size_t> there;  // the fraction that has arrived
    if (from) {
      there = variable(1);
      all.emplace_back(*there, 1);
    }
    const auto arrives = [&](std::size_t slot) {
      const std::size_t moved = variable(1);
      all.emplace_back(moved, 1);
      in[slot].emplace_back(moved, bytes);
      return moved;
    };
    for (std::size_t p = from ? *from + 1 : 0; p < use; ++p) {
      LinearProgram::Terms sum{{arrives(before(p)), 1}, {arrives(during(p)), 1}};
      if (there) sum.emplace_back(*there, 1);
      there = variable(1);
      sum.emplace_back(*there, -1);
      program.row(std::move(sum), 0, 0);
      memory[p].emplace_back(*there, bytes);
    }
    arrives(before(use));
    program.row(std::move(all), 1, 1);  // the whole group is there at its use
  }

  /// 1 - d of the gradient leaves and is updated on the host.
  void add_departure(std::size_t updated, const Places& places, const BoundGroup& group) {
    const double bytes = group.gradients / unit_bytes;
    const bool counts = places.counts && problem.gradients == Gradients::fresh;
    LinearProgram::Terms left{{updated, 1}}, done{{updated, 1}};
    std::optional<std::size_t> alive, waiting;  // of the gradient, on the device and on the host
    const auto leaves = [&](std::size_t slot) {
      const std::size_t moved = variable(1);
      left.emplace_back(moved, 1);
      out[slot].emplace_back(moved, bytes);
      if (overlaps_backward || slot == end()) {
        const std::size_t ran = variable(1);
        done.emplace_back(ran, 1);
        host[slot].emplace_back(ran, group.on_host / unit_time);
        if (overlaps_backward) waiting = queued(waiting, moved, ran);
      }
      return moved;
    };
    for (std::size_t p = places.made; counts && p <= places.complete && p < model.positions(); ++p) {
      held[p] -= group.gradients;  // it is there as the model has it
    }
    for (std::size_t p = places.complete + 1; p < model.positions(); ++p) {
      LinearProgram::Terms stays{{leaves(before(p)), 1}, {leaves(during(p)), 1}};
      if (alive) stays.emplace_back(*alive, -1);
      const double whole = alive ? 0 : 1;
      alive = variable(1);
      stays.emplace_back(*alive, 1);
      program.row(std::move(stays), whole, whole);
      if (counts) memory[p].emplace_back(*alive, bytes);
    }
    leaves(end());
    program.row(std::move(left), 1, 1);
    program.row(std::move(done), 1, 1);
  }

  /// What the host has not updated yet: what it had not before, and what has come, but for what it updates now.
  std::size_t queued(std::optional<std::size_t> before_it, std::size_t moved, std::size_t ran) {
    const std::size_t after_it = variable(1);
    LinearProgram::Terms queue{{moved, 1}, {ran, -1}, {after_it, -1}};
    if (before_it) queue.emplace_back(*before_it, 1);
    program.row(std::move(queue), 0, 0);
    return after_it;
  }

  void add_capacities() {
    const auto limit = [&](LinearProgram::Terms& moved, std::size_t slot, double rate) {
      if (moved.empty() || rate == unbounded) return;
      moved.emplace_back(durations[slot], -rate);
      program.row(std::move(moved), -unbounded, 0);
    };
    for (std::size_t s = 0; s < slots; ++s) {
      limit(in[s], s, model.in.bandwidth.value / unit_bytes * unit_time);
      limit(out[s], s, model.out.bandwidth.value / unit_bytes * unit_time);
      limit(host[s], s, 1);
    }
    limit(device_updates, end(), 1);
    for (LinearProgram::Terms& row : memory) {
      memory_rows.push_back(program.row(std::move(row), -unbounded, unbounded));
    }
  }

  const Problem& problem;
  const Graph& graph;
  OffloadModel model;
  bool overlaps_backward;
  std::map<Places, BoundGroup> groups;
  std::size_t slots = 0;
  double unit_bytes = 1, unit_time = 0;
  LinearProgram program;
  std::vector<std::size_t> durations;               // by slot
  std::vector<LinearProgram::Terms> in, out, host;  // by slot
  LinearProgram::Terms device_updates;
  std::vector<LinearProgram::Terms> memory;  // by position
  std::vector<double> held;                  // by position: what of the model's memory the program counts itself
  std::vector<std::size_t> memory_rows;
  std::unique_ptr<Relaxation> relaxation;
};

OffmateBound::OffmateBound(const PartTask& task, const Tape& tape, bool overlaps_backward) {
  if (task.problem.micro_batches > 1) return;
  std::variant<OffloadModel, std::string> model = offload_model(task, &tape);
  if (std::holds_alternative<std::string>(model)) return;
  program_ = std::make_unique<Program>(task, std::get<OffloadModel>(std::move(model)), overlaps_backward);
}

OffmateBound::~OffmateBound() = default;

std::optional<Seconds> OffmateBound::least(std::optional<Bytes> budget) const {
  return program_ ? program_->least(budget) : std::nullopt;
}

std::optional<double> OffmateBound::gap(std::optional<Bytes> budget, Seconds makespan) const {
  const std::optional<Seconds> bound = least(budget);
  if (!bound) return std::nullopt;
  return relative_gap(makespan, *bound, model_tolerance);
}

// The strategy `offmate`: some parameters live on the host and stream to the device around their uses, some optimizer
// states live there and the host updates their parameters, the rest stays on the device; which, and how far ahead, by
// simulation of many choices. Source: Zhao, Eyraud-Dubois, Le Hellard, Gusak, Beaumont, "OffMate: full fine-tuning of
// LLMs on a single GPU by re-materialization and offloading", 2024, whose continuous program is the bound here.
extern constinit const StrategyInfo offmate_strategy{
    .name = "offmate",
    .family = Family::offloading,
    .summary = "streams a share of the parameters to the device and updates a share on the host, during the iteration",
    .source =
        "Zhao et al., 'OffMate: full fine-tuning of LLMs on a single GPU by re-materialization and offloading', 2024",
    .options = offmate_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<offmate_tapes>,
            .candidates = by_options<offmate_candidates>,
            .moves_parameters = true,
        },
};

}  // namespace plimsoll
