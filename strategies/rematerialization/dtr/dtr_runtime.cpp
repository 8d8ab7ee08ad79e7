#include "strategies/rematerialization/dtr/dtr_runtime.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "strategies/rematerialization/dtr/dtr_neighbourhoods.h"
#include "strategies/rematerialization/dtr/dtr_pool.h"

namespace plimsoll {
namespace {

// The evicted neighbourhood e* of every resident storage as sets that are kept at every step: which evicted storages
// are reachable downwards through evicted ones, which upwards, and the resident storages where that ends. For logs in
// which a view joins storages that exist: regions learn of it only as they are built anew, and contradict each other
// until then, so that nothing but their history gives simrd's decisions. All others are faster with
// dtr_neighbourhoods.h. An eviction lets the regions at the storage's border absorb its own; a rematerialisation builds
// anew the regions that it borders on. Sums of time are taken when a storage enters a region and not revised when a
// later alias makes it dearer, as in simrd: `clock` equality depends on it.

class DtrRegions {
 public:
  explicit DtrRegions(const DtrStorages& storages) : storages_(storages) {}

  void add_storage();

  void evicted(std::uint32_t storage);
  void materialized(std::span<const std::uint32_t> storages);

  std::int64_t below(std::uint32_t s) const { return regions_[down][s].compute; }
  std::int64_t above(std::uint32_t s) const { return regions_[up][s].compute; }

  /// Storages whose sums may have changed since `changes` was last cleared.
  std::vector<std::uint32_t> changes;

 private:
  enum Direction : std::uint8_t { down, up };
  struct Region {
    std::vector<std::uint32_t> interior, frontier;
    std::int64_t compute = 0;
  };

  void absorb(Direction, std::uint32_t base, std::uint32_t storage);
  void rebuild(Direction, std::uint32_t base);

  const DtrStorages& storages_;
  std::array<std::vector<Region>, 2> regions_;  // by storage
  Marks inside_, border_;
  std::vector<std::uint32_t> stack_, affected_[2];
};

void DtrRegions::add_storage() {
  for (std::vector<Region>& direction : regions_) direction.emplace_back();
  inside_.grow(regions_[down].size());
  border_.grow(regions_[down].size());
}

void DtrRegions::absorb(Direction direction, std::uint32_t base, std::uint32_t storage) {
  Region& region = regions_[direction][base];
  const Region& other = regions_[direction][storage];
  inside_.clear();
  border_.clear();
  for (const std::uint32_t s : region.interior) inside_.add(s);
  std::erase(region.frontier, storage);
  for (const std::uint32_t s : region.frontier) border_.add(s);
  for (const std::uint32_t s : other.frontier) {
    if (border_.add(s)) region.frontier.push_back(s);
  }
  const auto take = [&](std::uint32_t s) {
    if (!inside_.add(s)) return;
    region.interior.push_back(s);
    region.compute += storages_.compute[s];
  };
  for (const std::uint32_t s : other.interior) take(s);
  take(storage);
  changes.push_back(base);
}

void DtrRegions::evicted(std::uint32_t storage) {
  Region &below = regions_[down][storage], &above = regions_[up][storage];
  for (const std::uint32_t s : above.frontier) absorb(down, s, storage);
  for (const std::uint32_t s : below.frontier) absorb(up, s, storage);
  for (Region* region : {&below, &above}) {
    region->interior.clear();
    region->frontier.clear();
    region->compute = 0;
  }
}

void DtrRegions::rebuild(Direction direction, std::uint32_t base) {
  Region& region = regions_[direction][base];
  region.interior.clear();
  region.frontier.clear();
  region.compute = 0;
  inside_.clear();
  border_.clear();
  stack_.assign(1, base);
  while (!stack_.empty()) {
    const std::uint32_t s = stack_.back();
    stack_.pop_back();
    for (const std::uint32_t next : direction == down ? storages_.children[s] : storages_.parents[s]) {
      if (storages_.material[next]) {
        if (next != base && border_.add(next)) region.frontier.push_back(next);
      } else if (inside_.add(next)) {
        region.compute += storages_.compute[next];
        region.interior.push_back(next);
        stack_.push_back(next);
      }
    }
  }
  changes.push_back(base);
}

void DtrRegions::materialized(std::span<const std::uint32_t> storages) {
  for (std::vector<std::uint32_t>& list : affected_) list.clear();
  for (const std::uint32_t s : storages) {
    rebuild(down, s);
    rebuild(up, s);
    const auto& above = regions_[up][s].frontier;
    const auto& below = regions_[down][s].frontier;
    affected_[down].insert(affected_[down].end(), above.begin(), above.end());
    affected_[up].insert(affected_[up].end(), below.begin(), below.end());
  }
  for (const Direction direction : {down, up}) {
    std::vector<std::uint32_t>& list = affected_[direction];
    if (storages.size() > 1) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    for (const std::uint32_t s : list) rebuild(direction, s);
  }
}

/// Whether a view makes storages neighbours that exist already: what is known of a neighbourhood then depends on when
/// it was last built anew.
bool views_join_storages(const OpLog& log) {
  std::vector<std::uint32_t> root(log.tensors.size());
  for (const LoggedCall& call : log.calls) {
    for (const TensorId t : call.results) root[t.index] = log[t].alias_of ? root[log[t].alias_of->index] : t.index;
    for (const TensorId t : call.results) {
      const auto is_other = [&](TensorId a) { return root[a.index] != root[t.index]; };
      if (log[t].alias_of && std::ranges::any_of(call.arguments, is_other)) return true;
    }
  }
  return false;
}

class Runtime {
 public:
  Runtime(const OpLog& log, const DtrOptions& options)
      : log_(log),
        options_(options),
        budget_(options.budget.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 2}).count),
        components_(storages_),
        neighbourhoods_(storages_, components_),
        regions_(storages_),
        pool_(options.heuristic, options.seed),
        uses_regions_(counts_evicted(options.heuristic) && views_join_storages(log)),
        uses_neighbourhoods_(counts_evicted(options.heuristic) && !uses_regions_),
        uses_components_(uses_neighbourhoods_ || options.heuristic == DtrHeuristic::dtr_eq),
        storage_of_(log.tensors.size()),
        call_of_(log.tensors.size()),
        defined_(log.tensors.size(), 0),
        result_bytes_(log.calls.size(), 0) {}

  DtrRun run() {
    run_.end = play(log_, *this);
    return std::move(run_);
  }

  // --- the log's events

  void call(std::uint32_t index) {
    const LoggedCall& call = log_.calls[index];
    EXPECTS(!call.results.empty());
    neighbourhoods_.begin_call();
    for (const TensorId t : call.results) add_tensor(t, index);
    materialize(call.results.front().index, Purpose::model);
    for (const TensorId t : call.results) pool_.set_last_access(storage_of_[t.index], run_.clock);
    if (call.keep == Keep::evictable) return;
    for (const TensorId t : call.results) pin(storage_of_[t.index]);
  }

  void refer(std::uint32_t tensor) { ++storage(tensor).references; }

  void release(std::uint32_t tensor) {
    const std::uint32_t s = storage_of_[tensor];
    EXPECTS(known_[s].references > 0);
    if (--known_[s].references > 0 || !storages_.material[s]) return;
    if (known_[s].keep == Keep::until_released) {
      storages_.material[s] = 0;
      memory_ -= known_[s].bytes;
    } else if (!known_[s].pinned) {
      evict(s);
      ++run_.eager_evictions;
    }
  }

  void keep(std::uint32_t tensor) {
    if (!defined_[tensor]) materialize(tensor, Purpose::rematerialization);
    pin(storage_of_[tensor]);
  }

 private:
  enum class Purpose : std::uint8_t { model, rematerialization };

  struct Storage {
    std::int64_t bytes = 0;
    std::int64_t references = 0;
    std::uint32_t locks = 0;  ///< calls that use it now, and one where it is pinned
    bool pinned = false;
    Keep keep = Keep::evictable;
    std::vector<std::uint32_t> tensors;
    std::optional<std::uint32_t> last_call;  ///< that made a tensor on it
  };

  Storage& storage(std::uint32_t tensor) { return known_[storage_of_[tensor]]; }

  void add_tensor(TensorId t, std::uint32_t call) {
    const LoggedTensor& tensor = log_[t];
    call_of_[t.index] = call;
    if (tensor.alias_of) {
      storage_of_[t.index] = storage_of_[tensor.alias_of->index];
    } else {
      storage_of_[t.index] = add_storage(tensor.bytes.count, log_.calls[call].keep);
      result_bytes_[call] += tensor.bytes.count;
    }
    const std::uint32_t s = storage_of_[t.index];
    Storage& own = known_[s];
    own.tensors.push_back(t.index);
    ++own.references;
    if (own.last_call != call) {  // several results on one storage count their call once
      own.last_call = call;
      storages_.compute[s] += log_.calls[call].nanoseconds;
      if (uses_neighbourhoods_ && tensor.alias_of && !storages_.material[s]) {
        neighbourhoods_.became_dearer(s, log_.calls[call].nanoseconds);
      }
      weigh(s);
    }
    if (own.keep != Keep::evictable) return;
    if (uses_neighbourhoods_ && !tensor.alias_of) neighbourhoods_.await(s);
    for (const TensorId argument : log_.calls[call].arguments) {
      const std::uint32_t parent = storage_of_[argument.index];
      if (known_[parent].keep != Keep::evictable || !storages_.add_edge(parent, s)) continue;
      if (uses_components_) components_.add_edge(parent, s);
    }
  }

  std::uint32_t add_storage(std::int64_t bytes, Keep keep) {
    const std::uint32_t s = storages_.add();
    known_.emplace_back();
    known_[s].bytes = bytes;
    known_[s].keep = keep;
    pool_.add_storage(bytes);
    if (uses_neighbourhoods_) neighbourhoods_.add_storage();
    if (uses_regions_) regions_.add_storage();
    if (uses_components_) components_.add_storage();
    return s;
  }

  // --- locks

  void lock(std::uint32_t s) {
    EXPECTS(storages_.material[s]);
    if (known_[s].locks++ == 0) pool_.remove(s);
  }

  void unlock(std::uint32_t s) {
    if (--known_[s].locks == 0) append(s);
  }

  void pin(std::uint32_t s) {
    if (known_[s].pinned) return;
    lock(s);
    known_[s].pinned = true;
  }

  // --- weights

  /// Where neighbourhoods are in use, a lower bound while they are not exact.
  std::int64_t weight(std::uint32_t s) {
    const std::int64_t above = uses_regions_ ? regions_.above(s) : uses_neighbourhoods_ ? neighbourhoods_.above(s) : 0;
    const std::int64_t below = uses_regions_ ? regions_.below(s) : uses_neighbourhoods_ ? neighbourhoods_.below(s) : 0;
    switch (options_.heuristic) {
      case DtrHeuristic::dtr:
        return storages_.compute[s] + below + above;
      case DtrHeuristic::msps:
        return storages_.compute[s] + above;
      case DtrHeuristic::dtr_eq:
        return storages_.compute[s] + components_.beside(s);
      case DtrHeuristic::local:
      case DtrHeuristic::lru:
      case DtrHeuristic::size:
      case DtrHeuristic::random:
        break;
    }
    return storages_.compute[s];
  }

  void weigh(std::uint32_t s) {
    if (pool_.contains(s)) pool_.set_weight(s, weight(s));
  }

  void weigh_changed() {
    for (std::vector<std::uint32_t>* changes : {&neighbourhoods_.changes, &regions_.changes}) {
      for (const std::uint32_t s : *changes) weigh(s);
      changes->clear();
    }
    if (options_.heuristic == DtrHeuristic::dtr_eq) components_.report([this](std::uint32_t s) { weigh(s); });
  }

  void append(std::uint32_t s) {
    pool_.set_weight(s, weight(s));
    pool_.append(s);
  }

  // --- eviction

  void evict(std::uint32_t s) {
    EXPECTS(known_[s].locks == 0 && !known_[s].pinned);
    storages_.material[s] = 0;
    memory_ -= known_[s].bytes;
    pool_.remove(s);
    for (const std::uint32_t t : known_[s].tensors) defined_[t] = 0;
    if (uses_neighbourhoods_) neighbourhoods_.evicted(s);
    if (uses_regions_) regions_.evicted(s);
    if (uses_components_) components_.evicted(s);
  }

  /// What is chosen by lower bounds is the cheapest once its own is exact.
  std::uint32_t cheapest() {
    std::uint32_t s = pool_.choose(run_.clock);
    while (uses_neighbourhoods_ && !neighbourhoods_.is_exact(s)) {
      neighbourhoods_.sharpen(s);
      weigh(s);
      s = pool_.choose(run_.clock);
    }
    return s;
  }

  void make_room(std::int64_t bytes) {
    while (memory_ + bytes > budget_) {
      if (pool_.empty()) throw DtrStop{DtrEnd::out_of_memory};
      weigh_changed();
      evict(cheapest());
      ++run_.evictions;
    }
  }

  // --- computing; the recursion over missing arguments has a stack of its own, since chains can be long

  struct Frame {
    std::uint32_t tensor = 0;
    Purpose purpose = Purpose::model;
    std::size_t first_missing = 0, next_missing = 0;  ///< of its arguments, in missing_
  };

  const LoggedCall& call_behind(std::uint32_t tensor) const { return log_.calls[call_of_[tensor]]; }

  void enter(std::uint32_t tensor, Purpose purpose) {
    const LoggedCall& call = call_behind(tensor);
    for (const TensorId a : call.arguments) pool_.set_last_access(storage_of_[a.index], run_.clock);
    frames_.push_back({tensor, purpose, missing_.size(), missing_.size()});
    for (const TensorId a : call.arguments) {
      if (defined_[a.index]) lock(storage_of_[a.index]);
    }
    for (const TensorId a : call.arguments) {
      if (!defined_[a.index]) missing_.push_back(a.index);
    }
  }

  void materialize(std::uint32_t tensor, Purpose purpose) {
    enter(tensor, purpose);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.next_missing < missing_.size()) {
        const std::uint32_t argument = missing_[frame.next_missing];
        if (!defined_[argument]) {
          enter(argument, Purpose::rematerialization);
          continue;
        }
        lock(storage_of_[argument]);
        ++frame.next_missing;
        continue;
      }
      const Frame done = frame;
      missing_.resize(done.first_missing);
      frames_.pop_back();
      finish(done);
    }
  }

  void finish(const Frame& frame) {
    const LoggedCall& call = call_behind(frame.tensor);
    const std::int64_t bytes = result_bytes_[call_of_[frame.tensor]];
    make_room(bytes + call.workspace.count);
    compute(frame.tensor, call, bytes);
    if (frame.purpose == Purpose::rematerialization) {
      EXPECTS(call.keep == Keep::evictable);
      run_.rematerialization_time += call.nanoseconds;
      ++run_.rematerializations;
    }
    for (const TensorId a : call.arguments) unlock(storage_of_[a.index]);
    if (options_.rematerialization_limit && run_.rematerialization_time > *options_.rematerialization_limit) {
      throw DtrStop{DtrEnd::thrashing};
    }
  }

  /// Makes all results anew, also those still there, whose second copy then dies.
  void compute(std::uint32_t tensor, const LoggedCall& call, std::int64_t bytes) {
    run_.calls.push_back(id_at<OpId>(call_of_[tensor]));
    run_.clock += call.nanoseconds;
    memory_ += bytes;
    run_.peak = std::max(run_.peak, Bytes{memory_ + call.workspace.count});
    fresh_.clear();
    const auto make = [&](std::uint32_t t) {
      const std::uint32_t s = storage_of_[t];
      defined_[t] = 1;
      if (storages_.material[s]) return;
      storages_.material[s] = 1;
      fresh_.push_back(s);
    };
    for (const TensorId t : call.results) {
      if (t.index == tensor) continue;
      if (defined_[t.index]) {
        memory_ -= log_[t].bytes.count;
      } else {
        make(t.index);
      }
    }
    make(tensor);  // the one asked for enters the pool last
    if (uses_components_) components_.materialized(fresh_);
    if (uses_neighbourhoods_) neighbourhoods_.materialized(fresh_);
    if (uses_regions_) regions_.materialized(fresh_);
    for (const std::uint32_t s : fresh_) append(s);
  }

  const OpLog& log_;
  const DtrOptions& options_;
  std::int64_t budget_, memory_ = 0;
  DtrStorages storages_;
  DtrComponents components_;
  DtrNeighbourhoods neighbourhoods_;
  DtrRegions regions_;
  DtrPool pool_;
  bool uses_regions_, uses_neighbourhoods_, uses_components_;
  std::vector<Storage> known_;  // beside storages_
  std::vector<std::uint32_t> storage_of_, call_of_;
  std::vector<std::uint8_t> defined_;       // by tensor
  std::vector<std::int64_t> result_bytes_;  // by call
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> missing_, fresh_;
  DtrRun run_;
};

}  // namespace

DtrRun run_dtr(const OpLog& log, const DtrOptions& options) {
  return Runtime(log, options).run();
}

DtrBaseline dtr_baseline(const OpLog& log) {
  DtrBaseline baseline;
  std::vector<std::uint32_t> root(log.tensors.size());
  std::vector<std::int64_t> references(log.tensors.size(), 0);  // by root
  Bytes memory;
  for (const OpLog::Event& event : log.events) {
    if (event.kind == OpLog::EventKind::call) {
      const LoggedCall& call = log.calls[event.index];
      for (const TensorId t : call.results) {
        root[t.index] = log[t].alias_of ? root[log[t].alias_of->index] : t.index;
        ++references[root[t.index]];
        memory += log[t].bytes;
      }
      baseline.memory = std::max(baseline.memory, memory + call.workspace);
      baseline.compute += call.nanoseconds;
    } else if (event.kind == OpLog::EventKind::reference) {
      ++references[root[event.index]];
    } else if (--references[root[event.index]] == 0) {
      memory -= log.tensors[root[event.index]].bytes;
    }
  }
  return baseline;
}

DtrReplay replay_dtr_log(const OpLog& log, std::optional<Bytes> budget, DtrHeuristic heuristic, std::uint64_t seed,
                         double thrash_limit) {
  DtrReplay replay;
  replay.baseline = dtr_baseline(log);
  const double spare = static_cast<double>(replay.baseline.compute) * (thrash_limit - 1);
  DtrOptions options{.budget = budget, .heuristic = heuristic, .seed = seed, .rematerialization_limit = {}};
  if (spare < 0x1p62) options.rematerialization_limit = static_cast<std::int64_t>(spare);
  replay.run = run_dtr(log, options);
  replay.overhead = static_cast<double>(replay.run.clock) / static_cast<double>(replay.baseline.compute);
  return replay;
}

}  // namespace plimsoll
