#include "sim/judge/exchange.h"

#include <algorithm>
#include <cmath>

#include "sim/core/tolerance.h"
#include "sim/judge/sums.h"

namespace plimsoll {
Exchange::Exchange(const Schedule& schedule, const Collective& collective)
    : schedule_(schedule),
      kind_(collective.kind),
      ranks_(static_cast<std::uint32_t>(collective.ranks())),
      gives_(ranks_),
      gets_(ranks_),
      in_(ranks_),
      out_(ranks_) {
  const std::uint32_t values = collective.values;
  for (std::uint32_t i = 0; i < ranks_ * values; ++i) {
    const BufferId input = collective.inputs[i], output = collective.outputs[i];
    const Place place{i / values, i % values};
    places_.emplace_back(input, place);
    places_.emplace_back(output, place);
    gives_[place.rank] += static_cast<double>(schedule[input].range_length.count);
    gets_[place.rank] += static_cast<double>(schedule[output].range_length.count);
  }
  bytes_ = std::max(std::ranges::max(gives_), std::ranges::max(gets_));
  std::ranges::stable_sort(places_, {}, [](const auto& entry) { return entry.first; });
}

std::optional<Exchange::Place> Exchange::place_of(BufferId b) const {
  const auto found = std::ranges::lower_bound(places_, b, {}, [](const auto& entry) { return entry.first; });
  return found != places_.end() && found->first == b ? std::optional(found->second) : std::nullopt;
}

void Exchange::add(const Flow& flow) {
  const auto ordinal = static_cast<std::uint32_t>(flows_.size());
  flows_.push_back(flow);
  out_[flow.from].push_back(ordinal);
  in_[flow.to].push_back(ordinal);
}

bool Exchange::needs(std::uint32_t to, std::uint32_t from) const {
  if (to == from) return false;
  switch (kind_) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_to_all:
      return true;
    case CollectiveKind::reduce_scatter:
      return gets_[to] > 0;
    case CollectiveKind::all_gather:
      return gives_[from] > 0;
    case CollectiveKind::broadcast:
      return from == 0;
    case CollectiveKind::shift:
      return to == (from + 1) % ranks_;
  }
  return true;
}

/// How many bytes must come to a rank that carry what another one gives.
double Exchange::pair_bytes(std::uint32_t to, std::uint32_t from) const {
  if (kind_ == CollectiveKind::reduce_scatter) return gets_[to];
  if (kind_ == CollectiveKind::all_to_all) return gives_[from] / ranks_;
  if (kind_ == CollectiveKind::shift) return gives_[from];
  return kind_ == CollectiveKind::all_gather ? gives_[from] : bytes_;
}

void Exchange::end_of_flows() {
  find_ring();
  if (rounds_ > 0) return;
  heard_.resize(flows_.size());
  direct_ = is_direct();
}

bool Exchange::is_direct() const {
  std::vector<double> sent(ranks_);  // to one rank, by sender
  for (std::uint32_t to = 0; to < ranks_; ++to) {
    std::ranges::fill(sent, 0);
    for (const std::uint32_t f : in_[to]) sent[flows_[f].from] += bytes_of(flows_[f]);
    for (std::uint32_t from = 0; from < ranks_; ++from) {
      if (needs(to, from) && sent[from] < pair_bytes(to, from)) return false;
    }
  }
  return true;
}

double Exchange::bytes_of(const Flow& flow) const {
  return static_cast<double>(schedule_[flow.step].work.bytes.count);
}

/// Every rank sends to the next one only, equally often. An all-reduce takes 2(n-1) rounds of bytes/n, or n-1 where
/// all that a rank has heard of is sent on; the others take n-1.
void Exchange::find_ring() {
  if (kind_ == CollectiveKind::broadcast || flows_.empty()) return;
  const std::size_t times = out_[0].size();
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (out_[r].size() != times || in_[r].size() != times || times == 0) return;
    const std::uint32_t next = flows_[out_[r][0]].to;
    if (std::ranges::any_of(out_[r], [&](std::uint32_t f) { return flows_[f].to != next; })) return;
  }
  std::uint32_t at = 0, hops = 0;
  double least_sent = 0;
  do {
    double sent = 0;
    for (const std::uint32_t f : out_[at]) sent += bytes_of(flows_[f]);
    least_sent = hops == 0 ? sent : std::min(least_sent, sent);
    at = flows_[out_[at][0]].to;
    ++hops;
  } while (at != 0 && hops <= ranks_);
  if (hops != ranks_) return;
  const bool sends_all_on = least_sent >= (ranks_ - 1) * bytes_;
  const std::uint32_t rounds = kind_ == CollectiveKind::all_reduce && !sends_all_on ? 2 * (ranks_ - 1) : ranks_ - 1;
  if (times <= rounds && rounds > 1) rounds_ = rounds;
}

std::optional<std::string> Exchange::next(const Finished& finished) {
  carries_all_ = false;
  std::optional<std::string> wrong;
  if (rounds_ > 0) {
    wrong = next_in_ring(finished);
  } else if (!direct_) {
    wrong = hear(finished);
  }
  ++judged_;
  return wrong;
}

/// The k-th flow from a rank sends on what the one before the k-th brought there. One flow a rank stands for all
/// rounds, and takes the latencies of all but the last beside its bytes.
std::optional<std::string> Exchange::next_in_ring(const Finished& finished) {
  const Flow& flow = flows_[judged_];
  const std::vector<std::uint32_t>& sent = out_[flow.from];
  const auto k = static_cast<std::size_t>(std::ranges::lower_bound(sent, judged_) - sent.begin());
  const Step& step = schedule_[flow.step];
  const auto takes_rounds = [&](double rounds) {
    return step.measured || step.work.seconds.value >= (rounds - 1) * flow.latency.value * (1 - model_tolerance);
  };
  const bool stands_for_all = sent.size() == 1 || (flow.latency > Seconds{0} && takes_rounds(rounds_));
  carries_all_ = stands_for_all;
  const auto flows = static_cast<double>(sent.size());
  if (!takes_rounds(std::ceil(rounds_ / flows))) return "takes less than the latencies of the ring's rounds";
  if (stands_for_all || k == 0) return std::nullopt;
  const StepId before = flows_[in_[flow.from][k - 1]].step;
  if (before < flow.step && finished(before)) return std::nullopt;
  return "sends on what step " + std::to_string(before.index) + " brings, without waiting for it";
}

std::optional<std::string> Exchange::hear(const Finished& finished) {
  const Flow& flow = flows_[judged_];
  const Step& step = schedule_[flow.step];
  const bool is_pipelined = step.measured || (flow.latency > Seconds{0} && step.work.seconds >= flow.latency);
  carries_all_ = is_pipelined;
  for (const std::uint32_t f : in_[flow.from]) {
    if (is_pipelined || (f < judged_ && finished(flows_[f].step))) heard_[judged_].push_back(f);
  }
  all_heard_ += heard_[judged_].size();
  if (all_heard_ <= most_flows_heard) return std::nullopt;
  heard_[judged_].clear();
  return "is one of too many flows to follow (limit: " + std::to_string(most_flows_heard) + " pairs)";
}

/// Whether all that every rank gives reaches all that need it.
bool Exchange::all_is_heard() const {
  if (rounds_ > 0 || direct_) return true;
  std::vector<Contributions> carried(flows_.size());  // by flow: ranks
  for (std::size_t f = 0; f < flows_.size(); ++f) carried[f].add(flows_[f].from);
  for (bool grows = true; grows;) {
    grows = false;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      const std::size_t before = carried[f].count();
      for (const std::uint32_t g : heard_[f]) carried[f].add(carried[g]);
      grows |= carried[f].count() > before;
    }
  }
  for (std::uint32_t to = 0; to < ranks_; ++to) {
    for (std::uint32_t from = 0; from < ranks_; ++from) {
      if (!needs(to, from)) continue;
      double brought = 0;
      for (const std::uint32_t f : in_[to]) {
        if (carried[f].has(from)) brought += bytes_of(flows_[f]);
      }
      if (brought < pair_bytes(to, from)) return false;
    }
  }
  return true;
}

std::optional<std::string> Exchange::too_few_bytes() const {
  double all = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    double sent = 0, received = 0, must_send = bytes_, must_receive = bytes_;
    for (const std::uint32_t f : out_[r]) sent += bytes_of(flows_[f]);
    for (const std::uint32_t f : in_[r]) received += bytes_of(flows_[f]);
    switch (kind_) {
      case CollectiveKind::all_reduce:
        break;
      case CollectiveKind::reduce_scatter:
        must_send = bytes_ - gets_[r];
        must_receive = gets_[r];
        break;
      case CollectiveKind::all_gather:
        must_send = gives_[r];
        must_receive = bytes_ - gives_[r];
        break;
      case CollectiveKind::broadcast:
        must_send = r == 0 ? bytes_ : 0;
        must_receive = r == 0 ? 0 : bytes_;
        break;
      case CollectiveKind::all_to_all:
        must_send = gives_[r] - gives_[r] / ranks_;
        must_receive = gets_[r] - gets_[r] / ranks_;
        break;
      case CollectiveKind::shift:
        must_send = gives_[r];
        must_receive = gets_[r];
        break;
    }
    all += sent;
    if (sent < must_send) return "rank " + std::to_string(r) + " sends fewer bytes than others need of it";
    if (received < must_receive) return "rank " + std::to_string(r) + " receives fewer bytes than it needs";
  }
  if (kind_ == CollectiveKind::all_to_all || kind_ == CollectiveKind::shift) {
    return std::nullopt;  // what each rank sends is all there is
  }
  const double times = kind_ == CollectiveKind::all_reduce ? 2 : 1;  // n-1 sums, and n-1 ranks to tell
  if (all < times * (ranks_ - 1) * bytes_) return "all flows together move fewer bytes than it takes";
  return std::nullopt;
}

std::optional<std::string> Exchange::whole() const {
  if (std::optional<std::string> wrong = too_few_bytes()) return wrong;
  if (!all_is_heard()) return "what a rank gives does not reach another rank that needs it";
  return std::nullopt;
}

}  // namespace plimsoll
