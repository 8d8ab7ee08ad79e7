#include "experiments/sweep/rank_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "experiments/study/exit_code.h"
#include "experiments/sweep/late/mpi_ranks.h"
#include "sim/core/expects.h"
#include "sim/engine/late_library.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

using namespace std::chrono_literals;

// What a message begins with.
constexpr char identity_mark = 'I', task_mark = 'T', record_mark_of_rank = 'R', failure_mark_of_rank = 'F',
               finished_mark = 'D', refusal_mark = 'X', home_mark = 'H', away_mark = 'A', alive_mark = 'L';

// How often a rank says that it is there, and after how long without a word it is taken for dead.
constexpr std::chrono::steady_clock::duration between_words = 1s, longest_silence = 10s;

const MpiRanks& ranks() {
  static const MpiRanks& library = late_library<MpiRanks>("mpi");
  return library;
}

std::optional<int> whole_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  const Parsed<std::int64_t> value = parse_integer(text == nullptr ? "" : text);
  return value.fine() ? std::optional(static_cast<int>(value.value)) : std::nullopt;
}

/// Until something has arrived; `meanwhile` is called now and then, and ends the wait by saying false.
template <class Meanwhile>
std::optional<RankMessage> awaited(Meanwhile meanwhile) {
  for (;;) {
    if (std::optional<RankMessage> message = ranks().receive()) return message;
    if (!meanwhile()) return std::nullopt;
    std::this_thread::sleep_for(1ms);
  }
}

std::string failure_text(const TaskFailure& failure) {
  return failure_mark_of_rank +
         json_text(Json{
             {"exit_code", failure.exit_code}, {"message", failure.message}, {"beyond_limits", failure.beyond_limits}});
}

/// Tells rank 0 now and then that this one is there.
class Alive {
 public:
  void tell() {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < between_words) return;
    told_ = now;
    ranks().send(0, std::string(1, alive_mark));
  }

 private:
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

}  // namespace

std::optional<RankPlace> place_among_ranks() {
  constexpr std::pair<const char*, const char*> names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                           {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : names) {
    const std::optional<int> mine = whole_in_environment(rank), all = whole_in_environment(size);
    if (mine && all && *all > 1) return RankPlace{*mine, *all};
  }
  return std::nullopt;
}

RankPool::RankPool(RankPlace place, const Interruption& interruption, const std::string& identity)
    : place_(place), interruption_(interruption), ranks_(static_cast<std::size_t>(place.size)) {
  EXPECTS(place.rank == 0);
  ranks().enter();
  for (int waiting = place.size - 1; waiting > 0; --waiting) {
    const std::optional<RankMessage> message = awaited([&] { return !interruption_.asked(); });
    if (!message) return;
    if (message->text[0] == alive_mark) {
      ++waiting;
      continue;
    }
    if (message->text == identity_mark + identity) continue;
    if (message->text[0] == refusal_mark) {
      throw InputError(fmt::format("rank {} of {}: {}", message->from, place.size, message->text.substr(1)));
    }
    throw InputError(fmt::format("rank {} of {} has another experiment, other files or another build than rank 0",
                                 message->from, place.size));
  }
}

RankPool::~RankPool() {
  if (interruption_.asked()) return;  // the others have been interrupted, too
  const bool all_there = std::ranges::none_of(ranks_, &Rank::is_gone);
  for (int to = 1; to < place_.size; ++to) {
    ranks().send(to, std::string(1, all_there ? home_mark : away_mark));
  }
  if (all_there) ranks().leave();
}

void RankPool::hand_out(std::span<const Json> tasks, const PoolEvents& events) {
  for (std::size_t to = 1; to < ranks_.size() && !to_do_.empty(); ++to) {
    Rank& rank = ranks_[to];
    if (rank.task || rank.is_gone) continue;
    rank.task = to_do_.back();
    to_do_.pop_back();
    ranks().send(static_cast<int>(to), task_mark + json_text(tasks[*rank.task]));
    events.started(*rank.task);
  }
}

/// Whether there were any.
bool RankPool::give_up_silent(const PoolEvents& events) {
  const auto now = std::chrono::steady_clock::now();
  bool any = false;
  for (std::size_t r = 1; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (rank.is_gone || now - rank.heard < longest_silence) continue;
    any = rank.is_gone = true;
    fmt::print(stderr, "rank {} of {} has not been heard of for {} s and is taken for dead\n", r, place_.size,
               std::chrono::duration_cast<std::chrono::seconds>(longest_silence).count());
    if (!rank.task) continue;
    events.ended(*rank.task);
    to_do_.push_back(*rank.task);
    rank.task.reset();
  }
  return any;
}

void RankPool::take(int from, const std::string& text, const PoolEvents& events) {
  Rank& rank = ranks_[static_cast<std::size_t>(from)];
  if (rank.is_gone) return;
  rank.heard = std::chrono::steady_clock::now();
  EXPECTS(!text.empty());
  if (text[0] == alive_mark) return;
  EXPECTS(rank.task.has_value());
  const std::string_view body = std::string_view(text).substr(1);
  if (text[0] == record_mark_of_rank) return events.record(*rank.task, body);
  if (text[0] == failure_mark_of_rank) {
    const Json failure = Json::parse(body);
    return events.failed(*rank.task, {failure.at("exit_code"), failure.at("message"), failure.at("beyond_limits")});
  }
  EXPECTS(text[0] == finished_mark);
  events.ended(*rank.task);
  rank.task.reset();
}

bool RankPool::run(std::span<const Json> tasks, const PoolEvents& events) {
  to_do_.resize(tasks.size());
  std::iota(to_do_.rbegin(), to_do_.rend(), std::size_t{0});
  auto told = std::chrono::steady_clock::now();
  for (Rank& rank : ranks_) rank.heard = told;
  for (;;) {
    hand_out(tasks, events);
    const auto is_busy = [](const Rank& rank) { return rank.task.has_value(); };
    if (std::ranges::none_of(ranks_, is_busy)) return to_do_.empty();
    bool is_silent = false;
    const std::optional<RankMessage> message = awaited([&] {
      if (const auto now = std::chrono::steady_clock::now(); now - told > 200ms) {
        told = now;
        events.tick();
        is_silent = give_up_silent(events);
      }
      return !is_silent && !interruption_.asked();
    });
    if (message) {
      take(message->from, message->text, events);
    } else if (!is_silent) {
      return false;
    }
  }
}

int serve_rank(const Interruption& interruption, TaskPool& own, const std::string& identity) {
  ranks().enter();
  ranks().send(0, identity_mark + identity);
  Alive alive;
  for (;;) {
    const std::optional<RankMessage> message = awaited([&] {
      alive.tell();
      return !interruption.asked();
    });
    if (!message) return exit_interrupted;  // without leave(), for which rank 0 may never come
    if (message->text[0] == away_mark) return exit_fine;
    if (message->text[0] == home_mark) break;
    const Json task = Json::parse(std::string_view(message->text).substr(1));
    own.run(
        std::span(&task, 1),
        {.record = [](std::size_t, std::string_view text) { ranks().send(0, record_mark_of_rank + std::string(text)); },
         .failed = [](std::size_t, const TaskFailure& failure) { ranks().send(0, failure_text(failure)); },
         .tick = [&] { alive.tell(); }});
    ranks().send(0, std::string(1, finished_mark));
  }
  ranks().leave();
  return exit_fine;
}

int refuse_as_rank(const Interruption& interruption, const std::string& why) {
  ranks().enter();
  ranks().send(0, refusal_mark + why);
  awaited([&] { return !interruption.asked(); });  // until mpirun ends all
  return exit_bad_input;
}

}  // namespace plimsoll
