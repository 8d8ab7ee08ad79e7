#include "experiments/study/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "sim/io/printable.h"

namespace plimsoll {
namespace {

/// `8 s`, `3 min 20 s`, `2 h 5 min`
std::string in_words(double seconds) {
  const long s = std::lround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

/// Of the terminal.
std::size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// A line that the terminal would break could not be rewritten.
std::string of_width(std::string line, std::size_t columns) {
  constexpr std::string_view rest = "...";
  if (line.size() < columns) return line;
  std::size_t end = columns > rest.size() ? columns - rest.size() - 1 : 0;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // not within a letter of UTF-8
  return line.substr(0, end).append(rest);
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

void Progress::tell_left(Seconds left, bool at_least) {
  left_ = left;
  at_least_ = at_least;
}

void Progress::tell_now(std::string now) {
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
    line += fmt::format(", {:.3g}/s, {} {} left", 1 / each, at_least_ ? "at least" : "about", in_words(left));
  }
  if (!now_.empty()) line += ": " + printable(now_);
  if (terminal_) line = of_width(std::move(line), columns());
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
