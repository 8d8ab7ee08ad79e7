#include "validate/cpu/ranks/rank_meeting.h"

#include <stdexcept>
#include <string>

#include "validate/ranks/ranks_together.h"

namespace plimsoll {

void RankMeeting::meet(const Occasion& occasion, std::size_t place, std::size_t size, const KernelArguments& brings,
                       const std::function<void(Brought)>& work) {
  std::unique_lock lock(mutex_);
  Table& table = tables_[occasion];
  table.brought.resize(size);
  table.brought[place] = &brings;
  if (++table.came == size) {
    lock.unlock();
    work(table.brought);
    lock.lock();
    table.is_done = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return table.is_done || is_over_; });
  if (!table.is_done) throw std::runtime_error(std::string(other_rank_failed));
  if (++table.left == size) tables_.erase(occasion);
}

void RankMeeting::give_up() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

}  // namespace plimsoll
