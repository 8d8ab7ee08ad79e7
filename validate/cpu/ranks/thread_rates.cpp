#include "validate/cpu/ranks/thread_rates.h"

#include <barrier>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "sim/core/expects.h"
#include "validate/cpu/ranks/rank_exchange.h"
#include "validate/cpu/ranks/rank_meeting.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// A rank gives the whole, or its share, and gets the other.
ValueExchange bare_exchange(CollectiveKind kind, std::uint32_t ranks, Bytes bytes) {
  EXPECTS(bytes.count % (std::int64_t{4} * ranks) == 0);
  ValueExchange made{kind != CollectiveKind::all_gather, bytes, {}, {}};
  const std::int64_t share = bytes.count / ranks;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::vector<RankPiece> all{{0, 0, bytes.count}}, own{{r * share, r * share, share}};
    made.from.push_back(kind == CollectiveKind::all_gather ? own : all);
    made.to.push_back(kind == CollectiveKind::reduce_scatter ? own : all);
  }
  return made;
}

}  // namespace

MeasuredRate thread_exchange_seconds(CollectiveKind kind, std::uint32_t ranks, Bytes bytes, std::size_t repetitions) {
  const ValueExchange value = bare_exchange(kind, ranks, bytes);
  std::vector<std::uint32_t> group(ranks);
  std::iota(group.begin(), group.end(), 0U);
  std::vector<std::vector<float>> numbers(ranks, std::vector<float>(static_cast<std::size_t>(bytes.count / 4), 1.5F));
  const auto work = [&](RankMeeting::Brought brought) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const KernelArguments* each : brought) {
      from.push_back(static_cast<const std::byte*>(each->inputs[0]));
      to.push_back(static_cast<std::byte*>(each->inputs[0]));
    }
    exchange(value, group, from, to);
  };
  RankMeeting meeting;
  std::barrier begins(static_cast<std::ptrdiff_t>(ranks));
  std::vector<double> samples;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        KernelArguments own;
        own.inputs = {numbers[rank].data()};
        for (std::uint32_t r = 0; r <= repetitions; ++r) {  // the first one warms up
          begins.arrive_and_wait();
          const Clock::time_point began = Clock::now();
          meeting.meet({OpId{0}, r, 0}, rank, ranks, own, work);
          if (rank == 0 && r > 0) samples.push_back(std::chrono::duration<double>(Clock::now() - began).count());
        }
      });
    }
  }
  return rate_of(std::move(samples));
}

}  // namespace plimsoll
