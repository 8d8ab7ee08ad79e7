#include "strategies/placement/baechi/baechi_schedule.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <vector>

#include "sim/core/expects.h"
#include "strategies/placement/lists/insertion_schedule.h"
#include "strategies/placement/op_dag.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

// The bytes that Baechi's schedulers believe to be on each processor.

/// An op takes what it makes, its workspace while it runs, copies of what it reads that are not there yet, and
/// residents: with the first op of a group those of all the group. A value leaves all processors when its last reader
/// has ended.
class BaechiMemory {
 public:
  BaechiMemory(const OpDag&, const Machine&);

  /// What it would take more on the processor.
  std::int64_t needed(std::uint32_t node, std::uint32_t processor) const;
  std::int64_t room(std::uint32_t processor) const { return machine_.memory[processor] - used_[processor]; }
  void placed(std::uint32_t node, std::uint32_t processor);
  /// Returns the processors that have more room now.
  std::vector<std::uint32_t> finished(std::uint32_t node, std::uint32_t processor);
  const std::vector<std::int64_t>& peaks() const { return peak_; }

 private:
  /// Those that come with the node: of its group where that is not placed yet.
  const std::vector<std::uint32_t>& residents_with(std::uint32_t node) const;

  const OpDag& dag_;
  const Machine& machine_;
  std::vector<std::vector<std::uint32_t>> residents_of_node_, residents_of_group_;
  std::vector<bool> group_is_placed_;
  std::vector<std::vector<std::uint32_t>> value_on_, resident_on_;  // processors
  std::vector<std::size_t> unread_;                                 // by value: readers that have not ended
  std::vector<std::int64_t> used_, peak_;                           // by processor
};

bool is_among(const std::vector<std::uint32_t>& processors, std::uint32_t processor) {
  return std::ranges::find(processors, processor) != processors.end();
}

BaechiMemory::BaechiMemory(const OpDag& dag, const Machine& machine)
    : dag_(dag),
      machine_(machine),
      residents_of_node_(dag.size),
      residents_of_group_(dag.together.size()),
      group_is_placed_(dag.together.size(), false),
      value_on_(dag.values.size()),
      resident_on_(dag.residents.size()),
      used_(machine.size(), 0),
      peak_(machine.size(), 0) {
  for (const DagValue& value : dag.values) unread_.push_back(value.readers.size());
  for (std::uint32_t r = 0; r < dag.residents.size(); ++r) {
    for (const std::uint32_t v : dag.residents[r].users) {
      const bool is_grouped = dag.group[v] != no_node;
      std::vector<std::uint32_t>& list = is_grouped ? residents_of_group_[dag.group[v]] : residents_of_node_[v];
      if (list.empty() || list.back() != r) list.push_back(r);
    }
  }
}

const std::vector<std::uint32_t>& BaechiMemory::residents_with(std::uint32_t node) const {
  const std::uint32_t group = dag_.group[node];
  return group == no_node || group_is_placed_[group] ? residents_of_node_[node] : residents_of_group_[group];
}

std::int64_t BaechiMemory::needed(std::uint32_t node, std::uint32_t processor) const {
  std::int64_t bytes = dag_.workspace[node];
  for (const std::uint32_t value : dag_.makes[node]) bytes += dag_.values[value].bytes;
  for (const std::uint32_t value : dag_.reads[node]) {
    if (!is_among(value_on_[value], processor)) bytes += dag_.values[value].bytes;
  }
  for (const std::uint32_t resident : residents_with(node)) {
    if (!is_among(resident_on_[resident], processor)) bytes += dag_.residents[resident].bytes;
  }
  return bytes;
}

void BaechiMemory::placed(std::uint32_t node, std::uint32_t processor) {
  used_[processor] += needed(node, processor);
  peak_[processor] = std::max(peak_[processor], used_[processor]);
  for (const std::uint32_t value : dag_.makes[node]) value_on_[value].push_back(processor);
  for (const std::uint32_t value : dag_.reads[node]) {
    if (!is_among(value_on_[value], processor)) value_on_[value].push_back(processor);
  }
  for (const std::uint32_t resident : residents_with(node)) {
    if (!is_among(resident_on_[resident], processor)) resident_on_[resident].push_back(processor);
  }
  if (dag_.group[node] != no_node) group_is_placed_[dag_.group[node]] = true;
}

std::vector<std::uint32_t> BaechiMemory::finished(std::uint32_t node, std::uint32_t processor) {
  std::vector<std::uint32_t> roomier{processor};
  used_[processor] -= dag_.workspace[node];
  for (const std::uint32_t value : dag_.reads[node]) {
    if (--unread_[value] != 0) continue;
    for (const std::uint32_t p : value_on_[value]) {
      used_[p] -= dag_.values[value].bytes;
      if (!is_among(roomier, p)) roomier.push_back(p);
    }
    value_on_[value].clear();
  }
  return roomier;
}

class BaechiScheduler {
 public:
  BaechiScheduler(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> favourite)
      : dag_(dag),
        machine_(machine),
        favourite_(favourite),
        channels_(dag, machine),
        memory_(dag, machine),
        processors_(machine.size()),
        waits_(dag.size),
        group_on_(dag.together.size(), no_node),
        choices_(machine.size()) {
    made_.on.assign(dag.size, no_node);
    made_.order.resize(machine.size());
  }

  std::optional<BaechiSchedule> run() && {
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      waits_[v] = dag_.in[v].size();
      if (waits_[v] == 0) becomes_ready(v);
    }
    for (std::uint32_t ran = 0; ran < dag_.size;) {
      const Choice first = choose();
      if (!running_.empty() && running_.top().first <= first.start) {
        end_next();
        continue;
      }
      if (first.node == no_node) return std::nullopt;
      const std::int64_t needed = memory_.needed(first.node, first.processor);
      if (needed > memory_.room(first.processor)) {
        processors_[first.processor].no_room.insert({needed, first.node});
        leave_out(first);
        continue;
      }
      place(first);
      ++ran;
    }
    return BaechiSchedule{{std::move(made_), makespan_}, memory_.peaks()};
  }

 private:
  using Arriving = std::pair<Nanoseconds, std::uint32_t>;  // when its inputs may be there at the earliest, node
  template <class Item>
  using LeastFirst = std::priority_queue<Item, std::vector<Item>, std::greater<>>;
  struct Processor {
    LeastFirst<Arriving> arriving;
    LeastFirst<std::uint32_t> there;                     // nodes that can start when it is free, by the last look
    std::multimap<std::int64_t, std::uint32_t> no_room;  // by the bytes that they need
    Nanoseconds free = 0;
    std::uint32_t awaited = no_node;  // the favourite child of what ran last
  };
  struct Choice {
    Nanoseconds start = cannot_run;
    std::uint32_t node = no_node, processor = 0;

    friend bool operator<(const Choice& a, const Choice& b) {
      return std::tie(a.start, a.node, a.processor) < std::tie(b.start, b.node, b.processor);
    }
  };

  bool may_take(std::uint32_t v, std::size_t p) const {
    const std::uint32_t group = dag_.group[v];
    if (group != no_node && group_on_[group] != no_node) return group_on_[group] == p;
    return may_run_on(dag_, machine_, v, p);
  }
  bool waits_for_processor(std::uint32_t v, std::size_t p) const { return made_.on[v] == no_node && may_take(v, p); }

  Nanoseconds free(std::size_t p) const { return std::max(now_, processors_[p].free); }
  Nanoseconds start_on(std::uint32_t v, std::uint32_t p) {
    return std::max(free(p), channels_.arrival(v, p, made_.on));
  }

  void becomes_ready(std::uint32_t v) {
    for (std::uint32_t p = 0; p < processors_.size(); ++p) {
      if (may_take(v, p)) processors_[p].arriving.push({channels_.arrival(v, p, made_.on), v});
    }
  }

  /// Channels fill up, so that inputs come no earlier than by the last look; where they do, since another op has had
  /// them sent, `place` has put the node in again.
  Choice first_on(std::uint32_t p) {
    Processor& each = processors_[p];
    for (; !each.arriving.empty() && each.arriving.top().first <= free(p); each.arriving.pop()) {
      each.there.push(each.arriving.top().second);
    }
    for (; !each.there.empty(); each.there.pop()) {
      const std::uint32_t v = each.there.top();
      if (!waits_for_processor(v, p)) continue;
      const Nanoseconds arrival = channels_.arrival(v, p, made_.on);
      if (arrival <= free(p)) return {free(p), v, p};
      each.arriving.push({arrival, v});
    }
    while (!each.arriving.empty()) {
      const auto [looked, v] = each.arriving.top();
      if (waits_for_processor(v, p)) {
        const Nanoseconds arrival = channels_.arrival(v, p, made_.on);
        if (arrival <= looked) return {looked, v, p};
        each.arriving.pop();
        each.arriving.push({arrival, v});
      } else {
        each.arriving.pop();
      }
    }
    return {};
  }

  Choice choose() {
    for (std::uint32_t p = 0; p < processors_.size(); ++p) choices_[p] = first_on(p);
    while (true) {
      const Choice first = choices_.empty() ? Choice{} : std::ranges::min(choices_, std::less<>{});
      if (first.node == no_node) return first;
      const std::uint32_t awaited = processors_[first.processor].awaited;
      if (first.node == awaited || !stays_awake(first.processor) || is_urgent(first)) return first;
      choices_[first.processor] = {start_on(awaited, first.processor), awaited, first.processor};
    }
  }

  /// Whether what it waits for is ready and can start there as early as anywhere.
  bool stays_awake(std::uint32_t p) {
    const std::uint32_t v = processors_[p].awaited;
    if (v == no_node || waits_[v] != 0 || !waits_for_processor(v, p)) return false;
    const Nanoseconds here = start_on(v, p);
    for (std::uint32_t q = 0; q < processors_.size(); ++q) {
      if (q != p && may_take(v, q) && start_on(v, q) < here) return false;
    }
    return true;
  }

  /// Whether it can start at once on every processor that may take it, and all of them wait for something.
  bool is_urgent(const Choice& choice) {
    for (std::uint32_t q = 0; q < processors_.size(); ++q) {
      if (q == choice.processor || !may_take(choice.node, q)) continue;
      if (start_on(choice.node, q) > choice.start || !stays_awake(q)) return false;
    }
    return true;
  }

  void leave_out(const Choice& choice) {
    Processor& each = processors_[choice.processor];
    if (each.awaited == choice.node) each.awaited = no_node;
    if (!each.there.empty() && each.there.top() == choice.node) {
      each.there.pop();
    } else if (!each.arriving.empty() && each.arriving.top().second == choice.node) {
      each.arriving.pop();
    }
  }

  void end_next() {
    const auto [time, v] = running_.top();
    running_.pop();
    now_ = std::max(now_, time);
    for (const std::uint32_t p : memory_.finished(v, made_.on[v])) {
      Processor& each = processors_[p];
      const auto fits = each.no_room.upper_bound(memory_.room(p));
      for (auto at = each.no_room.begin(); at != fits; ++at) each.arriving.push({now_, at->second});
      each.no_room.erase(each.no_room.begin(), fits);
    }
  }

  void place(const Choice& choice) {
    const std::uint32_t v = choice.node, p = choice.processor;
    made_.on[v] = p;
    made_.order[p].push_back(v);
    if (dag_.group[v] != no_node) group_on_[dag_.group[v]] = p;
    for (const std::uint32_t value : channels_.receive(v, p, made_.on)) {
      for (const std::uint32_t reader : dag_.values[value].readers) {
        if (waits_[reader] == 0 && waits_for_processor(reader, p)) {
          processors_[p].arriving.push({channels_.arrival(reader, p, made_.on), reader});
        }
      }
    }
    memory_.placed(v, p);
    const Nanoseconds finish = choice.start + time_on(dag_, machine_, v, p);
    channels_.made(v, finish);
    processors_[p].free = finish;
    processors_[p].awaited = favourite_.empty() ? no_node : favourite_[v];
    makespan_ = std::max(makespan_, finish);
    running_.push({finish, v});
    for (const DagEdge& edge : dag_.out[v]) {
      if (--waits_[edge.node] == 0) becomes_ready(edge.node);
    }
  }

  const OpDag& dag_;
  const Machine& machine_;
  std::span<const std::uint32_t> favourite_;
  Channels channels_;
  BaechiMemory memory_;
  std::vector<Processor> processors_;
  std::vector<std::size_t> waits_;                             // by node: for so many others
  std::vector<std::uint32_t> group_on_;                        // no_node: not decided
  std::vector<Choice> choices_;                                // by processor
  LeastFirst<std::pair<Nanoseconds, std::uint32_t>> running_;  // when it ends, node
  Nanoseconds now_ = 0, makespan_ = 0;
  Placement made_;
};

// With x = 0 for the edge to a favourite child and x = 1 for one whose value is sent:
//   min w;  s_i + p_i + c_ij x_ij <= s_j;  s_i + p_i <= w;
//   sum over readers j of (1 - x_ij) <= 1;  sum over makers i of (1 - x_ij) <= 1;  0 <= x <= 1
// An edge is a favourite where x < 1/2. At most one edge of a node can be below in an exact solution, so that rounding
// keeps both sums; since the solver's is not exact, edges are taken by x, ascending, while both ends are free.
// Source: Hanen, Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small
// communication delays", 1995 (the program); Jeon et al., "Baechi", SoCC 2020 (its use).

struct SendingEdge {
  std::uint32_t from, to;
  Nanoseconds transfer;
  double sent = 1;  // x
};

std::vector<SendingEdge> sending_edges(const OpDag& dag, const Machine& machine) {
  std::vector<SendingEdge> edges;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (const DagEdge& edge : dag.out[v]) {
      if (edge.sends) edges.push_back({v, edge.node, machine.mean_transfer(edge.bytes)});
    }
  }
  return edges;
}

std::vector<std::uint32_t> first_free_pairs(const OpDag& dag, std::span<const SendingEdge> edges) {
  std::vector<std::uint32_t> child(dag.size, no_node);
  std::vector<bool> has_parent(dag.size, false);
  for (const SendingEdge& edge : edges) {
    if (child[edge.from] != no_node || has_parent[edge.to]) continue;
    child[edge.from] = edge.to;
    has_parent[edge.to] = true;
  }
  return child;
}

void at_most_one_favourite(LinearProgram& program, const std::vector<std::vector<std::size_t>>& edges_of) {
  for (const std::vector<std::size_t>& edges : edges_of) {
    if (edges.size() < 2) continue;
    LinearProgram::Terms terms;
    for (const std::size_t edge : edges) terms.push_back({edge, 1});
    program.row(std::move(terms), static_cast<double>(edges.size() - 1), unbounded);
  }
}

}  // namespace

std::optional<BaechiSchedule> baechi_schedule(const OpDag& dag, const Machine& machine,
                                              std::span<const std::uint32_t> favourite) {
  return BaechiScheduler(dag, machine, favourite).run();
}

std::vector<std::uint32_t> favourites_by_program(const OpDag& dag, const Machine& machine, double seconds) {
  std::vector<SendingEdge> edges = sending_edges(dag, machine);
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  Nanoseconds longest = 1;
  for (const Nanoseconds each : time) longest = std::max(longest, each);
  const auto scaled = [&](Nanoseconds each) { return static_cast<double>(each) / static_cast<double>(longest); };

  LinearProgram program;
  std::vector<std::vector<std::size_t>> from(dag.size), to(dag.size);
  for (const SendingEdge& edge : edges) {
    const std::size_t x = program.variable({});
    from[edge.from].push_back(x);
    to[edge.to].push_back(x);
  }
  std::vector<std::size_t> start;
  for (std::uint32_t v = 0; v < dag.size; ++v) start.push_back(program.variable({.upper = unbounded}));
  const std::size_t makespan = program.variable({.cost = 1, .upper = unbounded});
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const SendingEdge& edge = edges[e];
    program.row({{start[edge.to], 1}, {start[edge.from], -1}, {e, -scaled(edge.transfer)}}, scaled(time[edge.from]),
                unbounded);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    program.row({{makespan, 1}, {start[v], -1}}, scaled(time[v]), unbounded);
    for (const DagEdge& edge : dag.out[v]) {
      if (!edge.sends) program.row({{start[edge.node], 1}, {start[v], -1}}, scaled(time[v]), unbounded);
    }
  }
  at_most_one_favourite(program, from);
  at_most_one_favourite(program, to);
  const std::optional<std::vector<double>> values = Relaxation(program, seconds).solve();
  if (!values) return {};
  for (std::size_t e = 0; e < edges.size(); ++e) edges[e].sent = (*values)[e];
  constexpr double half = 0.5;
  std::erase_if(edges, [](const SendingEdge& edge) { return !(edge.sent < half); });
  std::ranges::stable_sort(edges, {}, &SendingEdge::sent);
  return first_free_pairs(dag, edges);
}

std::vector<std::uint32_t> favourites_by_transfer(const OpDag& dag, const Machine& machine) {
  std::vector<SendingEdge> edges = sending_edges(dag, machine);
  std::ranges::stable_sort(edges, std::ranges::greater{}, &SendingEdge::transfer);
  return first_free_pairs(dag, edges);
}

Favourites favourite_children(const OpDag& dag, const Machine& machine) {
  std::size_t size = dag.size;
  for (const DagEdge& edge : dag.out.items) size += edge.sends ? 1 : 0;
  if (size <= largest_favourite_program) {
    constexpr double seconds = 60;  // far more than it takes
    std::vector<std::uint32_t> child = favourites_by_program(dag, machine, seconds);
    if (child.size() == dag.size) return {std::move(child), true};
  }
  return {favourites_by_transfer(dag, machine), false};
}

Channels::Channels(const OpDag& dag, const Machine& machine)
    : dag_(dag), machine_(machine), finish_(dag.size, 0), free_(machine.size(), 0), there_(dag.values.size()) {
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::size_t first = reads_.items.size();
    for (const std::uint32_t value : dag.reads[v]) {
      if (dag.values[value].maker != no_node) reads_.items.push_back({dag.values[value].maker, value});
    }
    std::stable_sort(reads_.items.begin() + static_cast<std::ptrdiff_t>(first), reads_.items.end(),
                     [](const Read& a, const Read& b) { return a.maker < b.maker; });
    reads_.end_row();
  }
}

const Channels::There* Channels::there(std::uint32_t value, std::uint32_t processor) const {
  for (const There& each : there_[value]) {
    if (each.processor == processor) return &each;
  }
  return nullptr;
}

Nanoseconds Channels::send_all(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on,
                               std::vector<std::uint32_t>* came) {
  Nanoseconds all = 0;
  std::span<const Read> reads = reads_[node];
  for (const DagEdge& edge : dag_.in[node]) {
    const std::uint32_t maker = edge.node, from = on[maker];
    all = std::max(all, finish_[maker]);
    std::int64_t bytes = 0;
    bool sends = false;
    const std::size_t first = came ? came->size() : 0;
    for (; !reads.empty() && reads.front().maker == maker; reads = reads.subspan(1)) {
      if (from == processor) continue;
      const std::uint32_t value = reads.front().value;
      if (const There* is_there = there(value, processor)) {
        all = std::max(all, is_there->time);
        continue;
      }
      bytes += dag_.values[value].bytes;
      sends = true;
      if (came) came->push_back(value);
    }
    if (!sends) continue;
    const Nanoseconds takes = machine_.transfer(from, processor, bytes);
    const Nanoseconds sending = std::max(finish_[maker], free_[from]);
    const Nanoseconds receiving = std::max(sending, free_[processor]);
    before_.push_back({from, free_[from]});
    before_.push_back({processor, free_[processor]});
    free_[from] = sending + takes;
    free_[processor] = receiving + takes;
    all = std::max(all, free_[processor]);
    if (!came) continue;
    for (std::size_t at = first; at < came->size(); ++at) there_[(*came)[at]].push_back({processor, free_[processor]});
  }
  return all;
}

Nanoseconds Channels::arrival(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on) {
  const Nanoseconds all = send_all(node, processor, on, nullptr);
  for (; !before_.empty(); before_.pop_back()) free_[before_.back().processor] = before_.back().free;
  return all;
}

std::vector<std::uint32_t> Channels::receive(std::uint32_t node, std::uint32_t processor,
                                             const std::vector<std::uint32_t>& on) {
  std::vector<std::uint32_t> came;
  send_all(node, processor, on, &came);
  before_.clear();
  return came;
}

}  // namespace plimsoll
