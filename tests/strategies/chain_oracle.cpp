#include "tests/strategies/chain_oracle.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

namespace plimsoll {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
using Kind = ChainStep::Kind;

// What is resident: bit i of `inner` is what saved(i) holds besides x_{i+1}, bit i of `x` is x_i for i > 0. Backwards
// >= `due` have run.
struct Resident {
  std::size_t due = 0;
  unsigned inner = 0, x = 0;
  auto operator<=>(const Resident&) const = default;
};

bool bit(unsigned set, std::size_t i) {
  return ((set >> i) & 1U) != 0;
}
unsigned one(std::size_t i) {
  return 1U << i;
}

std::int64_t live_bytes(const ChainModel& m, const Resident& r) {
  std::int64_t sum = m.resident.count + m.x[0].count;
  for (std::size_t i = 0; i < m.stages(); ++i) {
    if (bit(r.inner, i)) sum += m.saved[i].count - m.x[i + 1].count;
    if (bit(r.x, i + 1)) sum += m.x[i + 1].count;
    if (i >= r.due) sum += m.new_gradients[i].count;
  }
  if (r.due < m.stages()) sum += m.input_gradient[r.due].count;
  return sum;
}

bool has(const Resident& r, std::size_t i) {
  return i == 0 || bit(r.x, i);
}

}  // namespace

std::optional<double> unrestricted_optimum(const ChainModel& m, std::int64_t budget) {
  std::map<std::tuple<Resident, unsigned>, double> best;  // with the forwards that ran, if any may not be repeated
  using Entry = std::tuple<double, Resident, unsigned>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  const bool all_recomputable = std::ranges::all_of(m.recomputable, [](bool b) { return b; });
  const auto reach = [&](double time, Resident r, unsigned ran) {
    if (all_recomputable) ran = 0;
    const auto [entry, fresh] = best.try_emplace({r, ran}, time);
    if (!fresh && entry->second <= time) return;
    entry->second = time;
    open.emplace(time, r, ran);
  };
  if (m.resident.count + m.x[0].count > budget) return std::nullopt;
  reach(0, {m.stages(), 0, 0}, 0);
  while (!open.empty()) {
    const auto [time, r, ran] = open.top();
    open.pop();
    if (best[{r, ran}] < time) continue;
    if (r.due == 0) return time;
    const std::int64_t live = live_bytes(m, r);
    for (std::size_t i = 0; i < r.due; ++i) {
      if (bit(r.x, i + 1)) reach(time, {r.due, r.inner, r.x & ~one(i + 1)}, ran);  // drop it
      if (!has(r, i) || bit(r.inner, i) || bit(r.x, i + 1)) continue;
      if (bit(ran, i) && !m.recomputable[i]) continue;
      if (live + m.saved[i].count + m.forward_workspace[i].count <= budget) {
        reach(time + m.forward[i].value, {r.due, r.inner | one(i), r.x | one(i + 1)}, ran | one(i));
      }
      if (live + m.x[i + 1].count + m.nograd_workspace[i].count <= budget) {
        reach(time + m.nograd[i].value, {r.due, r.inner, r.x | one(i + 1)}, ran | one(i));
      }
    }
    const std::size_t b = r.due - 1;
    if (!bit(r.inner, b) || (m.keeps_input[b] && !has(r, b)) || (m.keeps_output[b] && !has(r, b + 1))) continue;
    const std::int64_t made = m.input_gradient[b].count + m.new_gradients[b].count;
    if (live + made + m.backward_workspace[b].count > budget) continue;
    reach(time + m.backward[b].value, {b, r.inner & ~one(b), r.x & ~one(b + 1)}, ran);
  }
  return std::nullopt;
}

namespace {

class Recursion {
 public:
  explicit Recursion(const ChainModel& model) : m{model} {}

  // `checkpoint`: x_i is not a part of what stage i - 1 saved; its backward will be run with another x_i.
  double opt(std::size_t i, std::size_t l, std::int64_t memory, bool checkpoint) {
    if (memory < 0) return infinite;
    const auto key = std::make_tuple(i, l, memory, checkpoint);
    if (const auto known = memo_.find(key); known != memo_.end()) return known->second;
    return memo_[key] = std::min(save(i, l, memory, checkpoint), split(i, l, memory, checkpoint));
  }

 private:
  // Gradients that exist once the backwards of the stages after l have run.
  std::int64_t after(std::size_t l) const {
    std::int64_t sum = l + 1 < m.stages() ? m.input_gradient[l + 1].count : 0;
    for (std::size_t k = l + 1; k < m.stages(); ++k) sum += m.new_gradients[k].count;
    return sum;
  }

  // x_i is the caller's to count, so when it dies early its bytes come on top of `memory`.
  double save(std::size_t i, std::size_t l, std::int64_t memory, bool checkpoint) {
    const bool input_dies = i > 0 && !m.keeps_input[i] && (checkpoint || !m.keeps_output[i - 1]);
    const std::int64_t extra = input_dies ? m.x[i].count : 0;
    const std::int64_t in_backward = m.saved[i].count - (m.keeps_output[i] ? 0 : m.x[i + 1].count);
    const std::int64_t forward = after(l) + m.saved[i].count + m.forward_workspace[i].count;
    const std::int64_t backward =
        after(i) + in_backward + m.input_gradient[i].count + m.new_gradients[i].count + m.backward_workspace[i].count;
    if (memory < forward || memory + extra < backward) return infinite;
    if (i == l) return m.forward[i].value + m.backward[i].value;
    return m.forward[i].value + m.backward[i].value +
           opt(i + 1, l, memory - std::max<std::int64_t>(0, m.saved[i].count - extra), false);
  }

  double split(std::size_t i, std::size_t l, std::int64_t memory, bool checkpoint) {
    double best = infinite;
    for (std::size_t j = i + 1; j <= l; ++j) {
      double time = 0;
      for (std::size_t k = i; k < j; ++k) {
        const std::int64_t forward =
            after(l) + (k > i ? m.x[k].count : 0) + m.x[k + 1].count + m.nograd_workspace[k].count;
        const bool runs = memory >= forward && m.recomputable[k];
        if (runs) time += m.nograd[k].value;
        if (!runs) time = infinite;
      }
      if (time == infinite) continue;
      best = std::min(best, time + opt(j, l, memory - m.x[j].count, true) + opt(i, j - 1, memory, checkpoint));
    }
    return best;
  }

  const ChainModel& m;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t, bool>, double> memo_;
};

}  // namespace

std::optional<double> persistent_optimum(const ChainModel& m, std::int64_t budget) {
  const ChainSequence all = store_all_sequence(m.stages());
  if (budget >= replayed_peak(m, all)) {
    double time = 0;
    for (std::size_t i = 0; i < m.stages(); ++i) time += m.forward[i].value + m.backward[i].value;
    return time;
  }
  const double time = Recursion(m).opt(0, m.stages() - 1, budget - m.resident.count - m.x[0].count, false);
  if (time == infinite) return std::nullopt;
  return time;
}

namespace {

bool makes(const ChainStep& s, std::size_t x) {
  return s.kind != Kind::backward && s.stage + 1 == x;
}

bool reads(const ChainModel& m, const ChainStep& s, std::size_t x) {
  if (s.kind != Kind::backward) return s.stage == x;
  return (s.stage == x && m.keeps_input[x]) || (s.stage + 1 == x && m.keeps_output[s.stage]);
}

// Whether the x made at step `made` is still read at step t or later.
bool read_later(const ChainModel& m, const ChainSequence& s, std::size_t x, std::size_t made, std::size_t t) {
  for (std::size_t u = made + 1; u < s.size() && !makes(s[u], x); ++u) {
    if (u >= t && reads(m, s[u], x)) return true;
  }
  return false;
}

}  // namespace

std::int64_t replayed_peak(const ChainModel& m, const ChainSequence& s) {
  std::int64_t peak = 0;
  for (std::size_t t = 0; t < s.size(); ++t) {
    std::int64_t live = m.resident.count + m.x[0].count;
    for (std::size_t made = 0; made < t; ++made) {
      const std::size_t i = s[made].stage;
      if (s[made].kind == Kind::backward) {
        live += m.new_gradients[i].count;
        const bool newest =
            std::none_of(s.begin() + static_cast<std::ptrdiff_t>(made) + 1, s.begin() + static_cast<std::ptrdiff_t>(t),
                         [](const ChainStep& u) { return u.kind == Kind::backward; });
        if (newest) live += m.input_gradient[i].count;
      } else if (s[made].kind == Kind::forward_saving) {
        const bool freed = std::find(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(t),
                                     ChainStep{Kind::backward, i}) != s.begin() + static_cast<std::ptrdiff_t>(t);
        if (!freed) live += m.saved[i].count - m.x[i + 1].count;
      }
      if (makes(s[made], i + 1) && read_later(m, s, i + 1, made, t)) live += m.x[i + 1].count;
    }
    const std::size_t i = s[t].stage;
    if (s[t].kind == Kind::backward) {
      live += m.input_gradient[i].count + m.new_gradients[i].count + m.backward_workspace[i].count;
    } else if (s[t].kind == Kind::forward_saving) {
      live += m.saved[i].count + m.forward_workspace[i].count;
    } else {
      live += m.x[i + 1].count + m.nograd_workspace[i].count;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

ChainModel random_chain_model(const ChainRanges& shape, std::uint64_t seed) {
  std::mt19937_64 generator(seed), early(seed + 1'000'003);
  const auto upto = [&](std::int64_t largest) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(largest + 1));
  };
  const auto size = [&](std::int64_t largest) {
    return upto(99) < shape.zero_percent ? Bytes{0} : Bytes{upto(largest)};
  };
  const auto seconds = [&] { return Seconds{static_cast<double>(upto(shape.largest_time))}; };

  ChainModel m;
  m.resident = shape.parameters ? Bytes{upto(shape.largest_size)} : Bytes{0};
  m.x.push_back(size(shape.largest_size));
  const bool loss = upto(2) > 0;
  for (std::size_t i = 0; i < shape.stages; ++i) {
    const bool empty = loss && i + 1 == shape.stages;
    m.x.push_back(empty ? Bytes{0} : size(shape.largest_size));
    m.saved.push_back(m.x.back() + (empty ? Bytes{0} : size(2 * shape.largest_size)));
    m.input_gradient.push_back(upto(3) > 0 ? m.x[i] : size(shape.largest_size));
    m.forward_workspace.push_back(size(shape.largest_workspace));
    m.nograd_workspace.push_back(upto(1) > 0 ? m.forward_workspace.back() : size(shape.largest_workspace));
    m.backward_workspace.push_back(size(shape.largest_workspace));
    const std::int64_t dies = std::min((m.saved.back() - m.x.back()).count, m.input_gradient.back().count);
    if (early() % 100 < shape.early_percent) {
      m.backward_workspace.back() = Bytes{-static_cast<std::int64_t>(early() % static_cast<std::uint64_t>(dies + 1))};
    }
    m.new_gradients.push_back(shape.parameters ? size(shape.largest_size) : Bytes{0});
    m.forward.push_back(empty ? Seconds{0} : seconds());
    m.nograd.push_back(shape.nograd_differs && upto(1) > 0 ? seconds() : m.forward.back());
    m.backward.push_back(seconds());
    m.recomputable.push_back(upto(99) >= shape.once_percent);
    m.keeps_input.push_back(i == 0 || upto(99) < shape.keeps_percent);
    m.keeps_output.push_back(upto(99) < shape.keeps_percent);
  }
  return m;
}

ChainSequence random_sequence(const ChainModel& m, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  ChainSequence sequence;
  Resident r{m.stages(), 0, 0};
  std::vector<bool> ran(m.stages());
  while (r.due > 0) {
    const std::size_t b = r.due - 1;
    if (bit(r.inner, b) && generator() % 2 > 0) {
      sequence.push_back({Kind::backward, b});
      r = {b, r.inner & ~one(b), r.x & ~one(b + 1)};
      continue;
    }
    const std::size_t i = generator() % r.due;
    if (!has(r, i) || bit(r.inner, i) || (ran[i] && !m.recomputable[i])) continue;
    const bool save = !m.recomputable[i] || sequence.size() > 100 || generator() % 3 == 0;
    ran[i] = true;
    sequence.push_back({save ? Kind::forward_saving : Kind::forward, i});
    r.x |= one(i + 1);
    if (save) r.inner |= one(i);
  }
  return sequence;
}

ChainModel worked_example_model() {
  ChainModel m;
  m.x = {{4}, {3}, {2}, {0}};
  m.saved = {{7}, {5}, {0}};
  m.input_gradient = {{4}, {3}, {2}};
  m.forward_workspace = m.nograd_workspace = {{1}, {2}, {0}};
  m.backward_workspace = {{2}, {1}, {3}};
  m.new_gradients = {{0}, {0}, {0}};
  m.forward = m.nograd = {{1}, {1}, {0}};
  m.backward = {{2}, {2}, {1}};
  m.recomputable = m.keeps_input = m.keeps_output = {true, true, true};
  return m;
}

}  // namespace plimsoll
