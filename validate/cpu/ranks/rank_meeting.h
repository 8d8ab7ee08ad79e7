#pragma once
// Where the threads of ranks meet to exchange values: who comes last does it for all.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "sim/core/ids.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

class RankMeeting {
 public:
  /// Which exchange: an op, how often this rank has run it before, and the group by its first rank.
  struct Occasion {
    OpId op;
    std::uint32_t occurrence = 0, group = 0;

    friend auto operator<=>(const Occasion&, const Occasion&) = default;
  };
  /// What the ranks of the group bring, in their order.
  using Brought = std::span<const KernelArguments* const>;

  /// Returns when all `size` ranks of the group have come and the last one has done the work. Throws
  /// std::runtime_error where they cannot all come.
  void meet(const Occasion&, std::size_t place, std::size_t size, const KernelArguments& brings,
            const std::function<void(Brought)>& work);

  /// Somebody will never come: all who wait leave.
  void give_up();

 private:
  struct Table {
    std::vector<const KernelArguments*> brought;
    std::size_t came = 0, left = 0;
    bool is_done = false;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Occasion, Table> tables_;
  bool is_over_ = false;
};

}  // namespace plimsoll
