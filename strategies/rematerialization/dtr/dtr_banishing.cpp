#include "strategies/rematerialization/dtr/dtr_banishing.h"

#include <algorithm>
#include <limits>
#include <set>

#include "sim/core/expects.h"
#include "strategies/rematerialization/dtr/dtr_pool.h"
#include "strategies/rematerialization/dtr/dtr_runtime.h"

namespace plimsoll {
namespace {

class BanishingRuntime {
 public:
  BanishingRuntime(const OpLog& log, const DtrOptions& options)
      : log_(log),
        options_(options),
        budget_(options.budget.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 2}).count),
        pool_(options.heuristic, options.seed),
        tensors_(log.tensors.size()),
        result_bytes_(log.calls.size(), 0) {}

  DtrRun run() {
    run_.end = play(log_, *this);
    return std::move(run_);
  }

  // --- the log's events

  void call(std::uint32_t index) {
    const LoggedCall& call = log_.calls[index];
    EXPECTS(!call.results.empty());
    for (const TensorId t : call.results) add_tensor(t, index);
    for (const TensorId a : call.arguments) {
      for (const TensorId t : call.results) tensors_[a.index].children.push_back(t.index);
    }
    materialize(call.results.front().index, Purpose::model);
    for (const TensorId t : call.results) pool_.set_last_access(tensors_[t.index].storage, run_.clock);
    if (call.keep == Keep::evictable) return;
    for (const TensorId t : call.results) pin(tensors_[t.index].storage);
  }

  void refer(std::uint32_t tensor) { ++storage_of(tensor).references; }

  void release(std::uint32_t tensor) {
    if (--storage_of(tensor).references == 0) banish_if_done(tensors_[tensor].storage);
  }

  void keep(std::uint32_t tensor) {
    if (!tensors_[tensor].defined) materialize(tensor, Purpose::rematerialization);
    pin(tensors_[tensor].storage);
  }

 private:
  enum class Purpose : std::uint8_t { model, rematerialization };

  struct Tensor {
    std::uint32_t storage = 0, call = 0;
    bool defined = false;
    std::vector<std::uint32_t> parents, children;  ///< tensors; banishing takes out of them
  };

  struct Storage {
    std::int64_t bytes = 0, references = 0, compute = 0;
    std::uint32_t locks = 0;  ///< calls that use it now, and one where it is pinned
    bool resident = false, pinned = false, banished = false;
    std::vector<std::uint32_t> tensors;
    std::set<std::uint32_t> evicted_dependents;  ///< undefined tensors computed of it, on other storages
  };

  Storage& storage_of(std::uint32_t tensor) { return storages_[tensors_[tensor].storage]; }

  void add_tensor(TensorId t, std::uint32_t call) {
    const LoggedTensor& logged = log_[t];
    Tensor& tensor = tensors_[t.index];
    tensor.call = call;
    tensor.storage =
        logged.alias_of ? tensors_[logged.alias_of->index].storage : static_cast<std::uint32_t>(storages_.size());
    if (!logged.alias_of) {
      storages_.emplace_back();
      storages_.back().bytes = logged.bytes.count;
      pool_.add_storage(logged.bytes.count);
      result_bytes_[call] += logged.bytes.count;
    }
    Storage& own = storages_[tensor.storage];
    const bool is_first_of_call = std::ranges::none_of(own.tensors, [&](auto u) { return tensors_[u].call == call; });
    if (is_first_of_call) own.compute += log_.calls[call].nanoseconds;
    if (pool_.contains(tensor.storage)) pool_.set_weight(tensor.storage, own.compute);
    own.tensors.push_back(t.index);
    ++own.references;
    for (const TensorId argument : log_.calls[call].arguments) {
      tensor.parents.push_back(argument.index);
      if (tensors_[argument.index].storage != tensor.storage) {
        storage_of(argument.index).evicted_dependents.insert(t.index);
      }
    }
  }

  // --- locks

  void lock(std::uint32_t s) {
    EXPECTS(storages_[s].resident && !storages_[s].banished);
    if (storages_[s].locks++ == 0) pool_.remove(s);
  }

  void unlock(std::uint32_t s) {
    EXPECTS(storages_[s].locks > 0);
    if (--storages_[s].locks == 0) append(s);
  }

  void pin(std::uint32_t s) {
    if (storages_[s].pinned) return;
    lock(s);
    storages_[s].pinned = true;
  }

  void append(std::uint32_t s) {
    pool_.set_weight(s, storages_[s].compute);
    pool_.append(s);
  }

  // --- eviction, and for good

  void evict(std::uint32_t s) {
    storages_[s].resident = false;
    memory_ -= storages_[s].bytes;
    if (pool_.contains(s)) pool_.remove(s);
    for (const std::uint32_t t : storages_[s].tensors) {
      tensors_[t].defined = false;
      for (const std::uint32_t p : tensors_[t].parents) {
        if (tensors_[p].storage != s) storage_of(p).evicted_dependents.insert(t);
      }
    }
  }

  void banish_if_done(std::uint32_t s) {
    if (storages_[s].references > 0 || !storages_[s].evicted_dependents.empty()) return;
    if (storages_[s].resident) {
      storages_[s].locks = 0;
      evict(s);
      ++run_.eager_evictions;
    }
    for (const std::uint32_t t : storages_[s].tensors) {
      for (const std::uint32_t p : tensors_[t].parents) {
        if (tensors_[p].storage == s) continue;
        storage_of(p).evicted_dependents.erase(t);
        take_out_first(tensors_[p].children, t);
      }
      for (const std::uint32_t c : tensors_[t].children) {
        if (tensors_[c].storage == s) continue;
        take_out_first(tensors_[c].parents, t);
        pin(tensors_[c].storage);
      }
    }
    storages_[s].banished = true;
  }

  static void take_out_first(std::vector<std::uint32_t>& list, std::uint32_t item) {
    const auto found = std::ranges::find(list, item);
    EXPECTS(found != list.end());
    list.erase(found);
  }

  void make_room(std::int64_t bytes) {
    while (memory_ + bytes > budget_) {
      if (pool_.empty()) throw DtrStop{DtrEnd::out_of_memory};
      evict(pool_.choose(run_.clock));
      ++run_.evictions;
    }
  }

  // --- computing; the recursion over missing arguments has a stack of its own, since chains can be long

  struct Frame {
    std::uint32_t tensor = 0;
    Purpose purpose = Purpose::model;
    std::vector<std::uint32_t> missing{};  ///< arguments, the next one last
  };

  void enter(std::uint32_t tensor, Purpose purpose) {
    frames_.push_back({tensor, purpose});
    for (const std::uint32_t p : tensors_[tensor].parents) {
      if (storage_of(p).references > 0) pool_.set_last_access(tensors_[p].storage, run_.clock);
    }
    for (const std::uint32_t p : tensors_[tensor].parents) {
      if (tensors_[p].defined) lock(tensors_[p].storage);
    }
    for (const std::uint32_t p : tensors_[tensor].parents) {
      if (!tensors_[p].defined) frames_.back().missing.push_back(p);
    }
    std::ranges::reverse(frames_.back().missing);
  }

  void materialize(std::uint32_t tensor, Purpose purpose) {
    enter(tensor, purpose);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (!frame.missing.empty()) {
        const std::uint32_t argument = frame.missing.back();
        if (!tensors_[argument].defined) {
          enter(argument, Purpose::rematerialization);
          continue;
        }
        lock(tensors_[argument].storage);
        frame.missing.pop_back();
        continue;
      }
      const std::uint32_t done = frame.tensor;
      const Purpose why = frame.purpose;
      frames_.pop_back();
      finish(done, why);
    }
  }

  void finish(std::uint32_t tensor, Purpose purpose) {
    const std::uint32_t index = tensors_[tensor].call;
    const LoggedCall& call = log_.calls[index];
    make_room(result_bytes_[index] + call.workspace.count);
    compute(tensor, index);
    if (purpose == Purpose::rematerialization) {
      EXPECTS(call.keep == Keep::evictable);
      run_.rematerialization_time += call.nanoseconds;
      ++run_.rematerializations;
    }
    const std::vector<std::uint32_t>& parents = tensors_[tensor].parents;
    // By position, since banishing shrinks the list: see the head of the header. NOLINTNEXTLINE(modernize-loop-convert)
    for (std::size_t k = 0; k < parents.size(); ++k) {
      const std::uint32_t p = tensors_[parents[k]].storage;
      unlock(p);
      for (const std::uint32_t made : made_) {
        if (tensors_[made].storage != p) storages_[p].evicted_dependents.erase(made);
      }
      banish_if_done(p);
    }
    if (options_.rematerialization_limit && run_.rematerialization_time > *options_.rematerialization_limit) {
      throw DtrStop{DtrEnd::thrashing};
    }
  }

  /// Makes all results anew, also those still there, whose second copy then dies.
  void compute(std::uint32_t tensor, std::uint32_t index) {
    const LoggedCall& call = log_.calls[index];
    run_.calls.push_back(id_at<OpId>(index));
    run_.clock += call.nanoseconds;
    memory_ += result_bytes_[index];
    run_.peak = std::max(run_.peak, Bytes{memory_ + call.workspace.count});
    made_.clear();
    for (const TensorId t : call.results) {
      if (t.index == tensor) continue;
      if (tensors_[t.index].defined) {
        memory_ -= log_[t].bytes.count;
      } else {
        made_.push_back(t.index);
      }
    }
    made_.push_back(tensor);  // the one asked for enters the pool last
    for (const std::uint32_t t : made_) {
      tensors_[t].defined = true;
      if (storage_of(t).resident) continue;
      storage_of(t).resident = true;
      append(tensors_[t].storage);
    }
  }

  const OpLog& log_;
  const DtrOptions& options_;
  std::int64_t budget_, memory_ = 0;
  DtrPool pool_;
  std::vector<Tensor> tensors_;
  std::vector<Storage> storages_;
  std::vector<std::int64_t> result_bytes_;  // by call
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> made_;
  DtrRun run_;
};

}  // namespace

DtrRun run_dtr_banishing(const OpLog& log, const DtrOptions& options) {
  EXPECTS(can_banish(options.heuristic));
  return BanishingRuntime(log, options).run();
}

}  // namespace plimsoll
