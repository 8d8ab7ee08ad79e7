#include "experiments/study/planning_watch.h"

#include <fmt/format.h>
#include <unistd.h>

namespace plimsoll {
namespace {

/// Straight to the file: planners and engines fork, and a child must find no lock of a stream taken.
void tell(const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());  // nobody may be there
}

}  // namespace

PlanningWatch::PlanningWatch(std::string what, std::chrono::milliseconds first, std::chrono::milliseconds pause)
    : what_(std::move(what)), first_(first), pause_(pause), is_terminal_(isatty(STDERR_FILENO) == 1), thread_([this] {
        run();
      }) {}

PlanningWatch::~PlanningWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

void PlanningWatch::set_progress(std::string how_far) {
  const std::lock_guard lock(mutex_);
  how_far_ = std::move(how_far);
}

void PlanningWatch::run() {
  using namespace std::chrono;
  const steady_clock::time_point started = steady_clock::now();
  std::unique_lock lock(mutex_);
  for (milliseconds next = first_; !ends_.wait_until(lock, started + next, [this] { return over_; });
       next += is_terminal_ ? milliseconds(1s) : pause_) {
    const std::string line =
        fmt::format("{}: {} s so far{}{}", what_, duration_cast<std::chrono::seconds>(next).count(),
                    how_far_.empty() ? "" : ", ", how_far_);
    tell(is_terminal_ ? "\r\033[K" + line : line + "\n");
    is_shown_ = is_terminal_;
  }
  clear();
}

void PlanningWatch::clear() {
  if (is_shown_) tell("\r\033[K");
  is_shown_ = false;
}

}  // namespace plimsoll
