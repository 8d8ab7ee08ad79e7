#include "tests/generate/dtr_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>

namespace plimsoll {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A natural number as decimal digits would be, in base 2^32, least first.
using Natural = std::vector<std::uint32_t>;

Natural natural(std::uint64_t n) {
  return {static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32U)};
}

Natural times(const Natural& a, const Natural& b) {
  Natural product(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      carry += product[i + j] + std::uint64_t{a[i]} * b[j];
      product[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    product[i + b.size()] = static_cast<std::uint32_t>(carry);
  }
  return product;
}

Natural power_of_two(unsigned exponent) {
  Natural n(exponent / 32 + 1, 0);
  n.back() = std::uint32_t{1} << exponent % 32;
  return n;
}

int compare(const Natural& a, const Natural& b) {
  for (std::size_t k = std::max(a.size(), b.size()); k-- > 0;) {
    const std::uint32_t x = k < a.size() ? a[k] : 0, y = k < b.size() ? b[k] : 0;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

/// How numerator / denominator compares with the double m * 2^e, m whole.
int compare_with(const Natural& numerator, const Natural& denominator, std::uint64_t m, int e) {
  Natural left = numerator, right = times(denominator, natural(m));
  if (e >= 0) {
    right = times(right, power_of_two(static_cast<unsigned>(e)));
  } else {
    left = times(left, power_of_two(static_cast<unsigned>(-e)));
  }
  return compare(left, right);
}

struct OStorage;

struct OTensor {
  OStorage* storage = nullptr;
  std::uint32_t call = 0, id = 0;
  std::vector<OTensor*> parents, children, siblings;
  bool defined = false;
};

struct Node {
  Node* parent = nullptr;
  std::int64_t value = 0;
};

struct ORegion {
  std::set<OStorage*> interior, frontier;
  std::int64_t compute = 0;
};

struct OStorage {
  std::int64_t size = 0, last_access = 0, external = 0, locks = 0;
  bool material = false, pinned = false, constant = false;
  std::vector<OTensor*> tensors;
  std::set<const OTensor*> dependents;  // evicted, when banishing
  ORegion region, region_above;
  Node* node = nullptr;
};

struct Ended {
  std::string why;
};

class Oracle {
 public:
  Oracle(const OpLog& log, std::optional<std::int64_t> budget, std::string heuristic, std::optional<std::int64_t> limit,
         bool banishing)
      : log_(log),
        budget_(budget),
        heuristic_(std::move(heuristic)),
        limit_(limit),
        banishing_(banishing),
        tensors_(log.tensors.size()) {}

  OracleRun run() {
    run_.end = "finished";
    try {
      for (const OpLog::Event& event : log_.events) {
        if (event.kind == OpLog::EventKind::call) call(event.index);
        if (event.kind == OpLog::EventKind::reference) ++tensors_[event.index].storage->external;
        if (event.kind == OpLog::EventKind::release) release(*tensors_[event.index].storage);
      }
      for (const TensorId t : log_.kept) {
        if (!tensors_[t.index].defined) materialize(tensors_[t.index], true);
        pin(*tensors_[t.index].storage);
      }
    } catch (const Ended& ended) {
      run_.end = ended.why;
    }
    return run_;
  }

 private:
  std::int64_t time(const OTensor& t) const { return log_.calls[t.call].nanoseconds; }

  std::int64_t own_compute(const OStorage& s) const {
    std::set<std::uint32_t> calls;
    std::int64_t sum = 0;
    for (const OTensor* t : s.tensors) {
      if (calls.insert(t->call).second) sum += time(*t);
    }
    return sum;
  }

  void call(std::uint32_t index) {
    const LoggedCall& call = log_.calls[index];
    for (const TensorId id : call.results) {
      OTensor& t = tensors_[id.index];
      t.id = id.index;
      t.call = index;
      if (log_[id].alias_of) {
        t.storage = tensors_[log_[id].alias_of->index].storage;
      } else {
        storages_.emplace_back();
        t.storage = &storages_.back();
        t.storage->size = log_[id].bytes.count;
        t.storage->constant = call.keep == Keep::forever;
        nodes_.emplace_back();
        t.storage->node = &nodes_.back();
      }
      t.storage->tensors.push_back(&t);
      ++t.storage->external;
      for (const TensorId a : call.arguments) t.parents.push_back(&tensors_[a.index]);
    }
    for (const TensorId id : call.results) {
      for (const TensorId other : call.results) {
        if (other != id) tensors_[id.index].siblings.push_back(&tensors_[other.index]);
      }
    }
    for (const TensorId a : call.arguments) {
      for (const TensorId id : call.results) {
        tensors_[a.index].children.push_back(&tensors_[id.index]);
        depend(tensors_[id.index], tensors_[a.index]);
      }
    }
    materialize(tensors_[call.results.front().index], false);
    for (const TensorId id : call.results) tensors_[id.index].storage->last_access = run_.clock;
    if (call.keep == Keep::forever) pin(*tensors_[call.results.front().index].storage);
  }

  static void depend(const OTensor& t, const OTensor& parent) {
    if (t.storage != parent.storage) parent.storage->dependents.insert(&t);
  }

  /// Gone for good where nobody can want it any more; what was made of it has to stay then.
  void banish(OStorage& s) {
    if (s.external > 0 || !s.dependents.empty()) return;
    if (s.material) {
      s.locks = 0;
      ++run_.eager_evictions;
      evict(s);
    }
    for (OTensor* t : s.tensors) {
      for (OTensor* p : t->parents) {
        if (p->storage == &s) continue;
        p->storage->dependents.erase(t);
        p->children.erase(std::ranges::find(p->children, t));
      }
      for (OTensor* c : t->children) {
        if (c->storage == &s) continue;
        c->parents.erase(std::ranges::find(c->parents, t));
        pin(*c->storage);
      }
    }
  }

  void release(OStorage& s) {
    if (--s.external > 0) return;
    if (banishing_) return banish(s);
    if (!s.material || s.pinned) return;
    ++run_.eager_evictions;
    evict(s);
  }

  void lock(OStorage& s) {
    if (s.locks++ == 0) pool_.remove(&s);
  }
  void unlock(OStorage& s) {
    if (--s.locks == 0) pool_.push_back(&s);
  }
  void pin(OStorage& s) {
    if (s.pinned) return;
    lock(s);
    s.pinned = true;
  }

  void materialize(OTensor& t, bool again) {
    for (OTensor* p : t.parents) {
      if (!banishing_ || p->storage->external > 0) p->storage->last_access = run_.clock;
    }
    std::vector<OTensor*> missing;
    for (OTensor* p : t.parents) {
      if (p->defined) {
        lock(*p->storage);
      } else {
        missing.push_back(p);
      }
    }
    for (OTensor* p : missing) {
      if (!p->defined) materialize(*p, true);
      lock(*p->storage);
    }
    std::int64_t bytes = 0;
    for (const TensorId r : log_.calls[t.call].results) bytes += log_[r].bytes.count;
    while (budget_ && memory_ + bytes > *budget_) {
      if (pool_.empty()) throw Ended{"out of memory"};
      OStorage* victim = choose();
      ++run_.evictions;
      evict(*victim);
    }
    const std::vector<OTensor*> made = compute(t, bytes);
    if (again) {
      ++run_.rematerializations;
      run_.rematerialization_time += time(t);
    }
    // Banishing takes parents out behind our back. NOLINTNEXTLINE(modernize-loop-convert)
    for (std::size_t k = 0; k < t.parents.size(); ++k) {
      OStorage& s = *t.parents[k]->storage;
      unlock(s);
      if (!banishing_) continue;
      for (const OTensor* u : made) {
        if (u->storage != &s) s.dependents.erase(u);
      }
      banish(s);
    }
    if (limit_ && run_.rematerialization_time > *limit_) throw Ended{"thrashing"};
  }

  std::vector<OTensor*> compute(OTensor& t, std::int64_t bytes) {
    std::vector<OTensor*> order = t.siblings;
    order.push_back(&t);
    std::vector<OStorage*> fresh;
    for (OTensor* u : order) {
      if (!u->storage->material) fresh.push_back(u->storage);
    }
    run_.calls.push_back(t.call);
    run_.clock += time(t);
    memory_ += bytes;
    run_.peak = std::max(run_.peak, memory_);
    for (OTensor* u : t.siblings) {
      if (u->defined) memory_ -= log_.tensors[u->id].bytes.count;
    }
    std::vector<OTensor*> made = order;
    std::erase_if(made, [](const OTensor* u) { return u->defined; });
    for (OTensor* u : order) u->defined = u->storage->material = true;
    for (OStorage* s : fresh) pool_.push_back(s);
    renew_regions(fresh);
    for (OStorage* s : fresh) {
      root(s->node)->value -= own_compute(*s);
      s->node = nullptr;
    }
    return made;
  }

  void evict(OStorage& s) {
    s.material = false;
    memory_ -= s.size;
    pool_.remove(&s);
    for (OTensor* t : s.tensors) {
      t->defined = false;
      for (const OTensor* p : t->parents) depend(*t, *p);
    }
    for (OStorage* p : s.region_above.frontier) absorb(p->region, s, s.region);
    for (OStorage* c : s.region.frontier) absorb(c->region_above, s, s.region_above);
    s.region = s.region_above = {};
    nodes_.push_back({nullptr, own_compute(s)});
    s.node = &nodes_.back();
    for (OStorage* n : evicted_neighbours(s)) {
      Node *left = root(n->node), *right = root(s.node);
      if (left == right) continue;
      left->parent = right;
      right->value += left->value;
    }
  }

  // --- neighbourhoods

  static Node* root(Node* n) {
    while (n->parent != nullptr) n = n->parent;
    return n;
  }

  static std::set<OStorage*> evicted_neighbours(const OStorage& s) {
    std::set<OStorage*> found;
    for (const OTensor* t : s.tensors) {
      for (const std::vector<OTensor*>* list : {&t->parents, &t->children}) {
        for (const OTensor* u : *list) {
          if (!u->storage->material && u->storage != &s) found.insert(u->storage);
        }
      }
    }
    return found;
  }

  void absorb(ORegion& region, OStorage& s, const ORegion& other) {
    region.frontier.erase(&s);
    region.frontier.insert(other.frontier.begin(), other.frontier.end());
    std::set<OStorage*> more = other.interior;
    more.insert(&s);
    for (OStorage* m : more) {
      if (region.interior.insert(m).second) region.compute += own_compute(*m);
    }
  }

  void rebuild(OStorage& base, bool above) {
    ORegion& region = above ? base.region_above : base.region;
    region = {};
    std::vector<OStorage*> stack{&base};
    while (!stack.empty()) {
      OStorage* s = stack.back();
      stack.pop_back();
      for (const OTensor* t : s->tensors) {
        for (const OTensor* u : above ? t->parents : t->children) {
          if (u->storage->material) {
            if (u->storage != &base) region.frontier.insert(u->storage);
          } else if (region.interior.insert(u->storage).second) {
            region.compute += own_compute(*u->storage);
            stack.push_back(u->storage);
          }
        }
      }
    }
  }

  void renew_regions(const std::vector<OStorage*>& fresh) {
    std::set<OStorage*> affected, affected_above;
    for (OStorage* s : fresh) {
      rebuild(*s, false);
      rebuild(*s, true);
      affected.insert(s->region_above.frontier.begin(), s->region_above.frontier.end());
      affected_above.insert(s->region.frontier.begin(), s->region.frontier.end());
    }
    for (OStorage* s : affected) rebuild(*s, false);
    for (OStorage* s : affected_above) rebuild(*s, true);
  }

  // --- the choice

  double cost(const OStorage& s) {
    const std::int64_t staleness = run_.clock - s.last_access;
    if (heuristic_ == "lru") return static_cast<double>(s.last_access);
    if (heuristic_ == "size") return s.size > 0 ? 1 / static_cast<double>(s.size) : infinity;
    std::int64_t compute = own_compute(s);
    if (heuristic_ == "msps") return oracle_quotient(compute + s.region_above.compute, s.size, 1);
    if (heuristic_ == "dtr") compute += s.region.compute + s.region_above.compute;
    if (heuristic_ == "dtr_eq") {
      std::set<Node*> roots;
      for (OStorage* n : evicted_neighbours(s)) roots.insert(root(n->node));
      for (const Node* n : roots) compute += n->value;
    }
    return oracle_quotient(compute, s.size, staleness);
  }

  OStorage* choose() {
    OStorage* best = nullptr;
    double least = infinity;
    for (OStorage* s : pool_) {
      const double each = cost(*s);
      if (each <= least) {
        least = each;
        best = s;
      }
      if (each == 0) break;
    }
    return best;
  }

  const OpLog& log_;
  std::optional<std::int64_t> budget_;
  std::string heuristic_;
  std::optional<std::int64_t> limit_;
  bool banishing_;
  std::vector<OTensor> tensors_;
  std::list<OStorage> storages_;
  std::list<Node> nodes_;
  std::list<OStorage*> pool_;
  std::int64_t memory_ = 0;
  OracleRun run_;
};

}  // namespace

double oracle_quotient(std::int64_t weight, std::int64_t bytes, std::int64_t staleness) {
  if (bytes <= 0 || staleness <= 0) return infinity;
  if (weight == 0) return 0;
  const Natural numerator = natural(static_cast<std::uint64_t>(std::abs(weight)));
  const Natural denominator =
      times(natural(static_cast<std::uint64_t>(bytes)), natural(static_cast<std::uint64_t>(staleness)));
  // Begin near, then step by half units in the last place until the quotient lies within half a unit, ties to even.
  const double near =
      static_cast<double>(std::abs(weight)) / (static_cast<double>(bytes) * static_cast<double>(staleness));
  double guess = near;
  for (int step = 0; step < 8; ++step) {
    int e = 0;
    const auto m = static_cast<std::uint64_t>(std::ldexp(std::frexp(guess, &e), 53));
    const int above = compare_with(numerator, denominator, 2 * m + 1, e - 54);  // against guess + half a unit
    const int below = compare_with(numerator, denominator, 2 * m - 1, e - 54);
    const bool even = m % 2 == 0;
    if (above > 0 || (above == 0 && !even)) {
      guess = std::nextafter(guess, infinity);
    } else if (below < 0 || (below == 0 && !even)) {
      guess = std::nextafter(guess, 0);
    } else {
      break;
    }
  }
  return weight < 0 ? -guess : guess;
}

OracleRun oracle_dtr(const OpLog& log, std::optional<std::int64_t> budget, const std::string& heuristic,
                     std::optional<std::int64_t> rematerialization_limit, bool banishing) {
  return Oracle(log, budget, heuristic, rematerialization_limit, banishing).run();
}

std::int64_t oracle_banishing_peak(const OpLog& log) {
  std::map<std::uint32_t, std::int64_t> references, bytes;  // by the tensor that owns the storage
  std::map<std::uint32_t, std::uint32_t> owner;
  std::int64_t peak = 0;
  for (const OpLog::Event& event : log.events) {
    if (event.kind == OpLog::EventKind::call) {
      for (const TensorId t : log.calls[event.index].results) {
        owner[t.index] = log[t].alias_of ? owner.at(log[t].alias_of->index) : t.index;
        if (!log[t].alias_of) bytes[t.index] = log[t].bytes.count;
        ++references[owner[t.index]];
      }
    } else {
      references[owner.at(event.index)] += event.kind == OpLog::EventKind::reference ? 1 : -1;
    }
    std::int64_t live = 0;
    for (const auto& [tensor, count] : references) live += count > 0 ? bytes[tensor] : 0;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace plimsoll
