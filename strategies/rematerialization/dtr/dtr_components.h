#pragma once
// Components of evicted storages for h_DTR_eq: union-find with a sum of times at each root. An eviction unites the
// storage with its evicted neighbours; a rematerialisation takes its time out of the sum and leaves the component
// whole. Each component knows the resident storages at its border, so that a new sum reaches only those it concerns.

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/rematerialization/dtr/dtr_storages.h"

namespace plimsoll {

class DtrComponents {
 public:
  explicit DtrComponents(const DtrStorages& storages) : storages_(storages) {}

  void add_storage();                                        ///< not resident yet: a component of time 0
  void add_edge(std::uint32_t parent, std::uint32_t child);  ///< after it was added to the storages
  void evicted(std::uint32_t storage);
  void materialized(std::span<const std::uint32_t> storages);

  /// Sum over the distinct components next to the storage.
  std::int64_t beside(std::uint32_t storage);

  /// Resident storages next to the component that an evicted storage is in, or was until now; the storage itself may be
  /// among them.
  std::span<const std::uint32_t> border(std::uint32_t storage);

  /// Calls changed(storage) for each resident storage whose sum may have changed since the last time. Most changes are
  /// overtaken by others before anybody asks.
  template <class Changed>
  void report(Changed&& changed) {
    seen_.clear();
    roots_.clear();
    for (const std::uint32_t c : touched_) {
      const std::uint32_t root = root_above(c);
      if (!roots_.add(root)) continue;
      for (const std::uint32_t s : clean_border(root)) {
        if (seen_.add(s)) reported_.push_back(s);
      }
    }
    touched_.clear();
    for (const std::uint32_t s : reported_) changed(s);  // which may look for roots
    reported_.clear();
  }

 private:
  struct Component {
    std::uint32_t parent = 0;  ///< itself: a root
    std::int64_t compute = 0;
    std::vector<std::uint32_t> border;  ///< of a root; some may have been evicted since
  };

  std::uint32_t add_component(std::int64_t compute);
  std::uint32_t root_of(std::uint32_t storage) { return root_above(component_of_[storage]); }
  std::uint32_t root_above(std::uint32_t component);
  std::vector<std::uint32_t>& clean_border(std::uint32_t root);
  void unite(std::uint32_t child_root, std::uint32_t root);

  const DtrStorages& storages_;
  std::vector<Component> components_;
  std::vector<std::uint32_t> component_of_;  // by storage; meaningful while it is not resident
  Marks seen_, in_border_, roots_;
  std::vector<std::uint32_t> touched_, reported_;  // components with a new sum or border; storages to report
};

}  // namespace plimsoll
