#include "experiments/study/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace plimsoll {
namespace {

/// `8 s`, `3 min 20 s`, `2 h 5 min`
std::string in_words(double seconds) {
  const long s = std::lround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

}  // namespace

Progress::Progress(std::size_t count, std::string_view what, bool quiet)
    : what_(what),
      count_(count),
      terminal_(isatty(STDERR_FILENO) == 1),
      quiet_(quiet),
      started_(Clock::now()),
      last_(started_) {}

Progress::~Progress() {
  clear_line();
}

void Progress::add(bool feasible) {
  ++done_;
  if (!feasible) ++infeasible_;
}

void Progress::tell(std::optional<Seconds> left, std::string now) {
  left_ = left;
  now_ = std::move(now);
}

void Progress::show() {
  using namespace std::chrono_literals;
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_ < (terminal_ ? Clock::duration(150ms) : Clock::duration(5s))) return;
  last_ = now;
  std::string line = fmt::format("{} of {} {}", done_, count_, what_);
  if (infeasible_ > 0) line += fmt::format(", {} infeasible", infeasible_);
  if (failed_ > 0) line += fmt::format(", {} groups failed", failed_);
  if (done_ > 0 && done_ < count_) {
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    const double each = elapsed / static_cast<double>(done_);
    const double left = left_ ? left_->value : each * static_cast<double>(count_ - done_);
    line += fmt::format(", {:.3g}/s, about {} left", 1 / each, in_words(left));
  }
  constexpr std::size_t longest = 60;  // a terminal's line is rewritten only where it is one
  if (!now_.empty()) line += ": " + (now_.size() > longest ? now_.substr(0, longest - 3) + "..." : now_);
  fmt::print(stderr, "{}{}", terminal_ ? "\r\033[K" : "", line);
  if (!terminal_) fmt::print(stderr, "\n");
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear_line() {
  if (terminal_ && shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace plimsoll
