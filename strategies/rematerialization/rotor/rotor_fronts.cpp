#include "strategies/rematerialization/rotor/rotor_fronts.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {
namespace {

constexpr std::size_t block_points = std::size_t{1} << 16;

PLIMSOLL_VECTOR_CLONES
void lower_to(double* upper, const double* late, const double* early, double nograd, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    const double time = nograd + late[c] + early[c];
    upper[c] = time < upper[c] ? time : upper[c];
  }
}

// The first cell in [c, end) where a choice may reach the bound, given its best times within each cell; else end.
PLIMSOLL_VECTOR_CLONES
std::int64_t first_reaching(const double* upper, const double* late, const double* early, double nograd, std::int64_t c,
                            std::int64_t end) {
  constexpr std::int64_t block = 8;
  for (; c + block <= end; c += block) {
    int reaching = 0;
    for (std::int64_t k = c; k < c + block; ++k) reaching += nograd + late[k] + early[k] <= upper[k] ? 1 : 0;
    if (reaching > 0) break;
  }
  while (c < end && !(nograd + late[c] + early[c] <= upper[c])) ++c;
  return c;
}

}  // namespace

class RotorRegion::Search {
 public:
  Search(const RotorGrid& grid, std::span<const Known> known) : grid_{grid} {
    const std::size_t n = grid.model().stages();
    parts_.resize(n * (n + 1));
    rests_.resize(n * (n + 1));
    Seconds longest;
    for (const Known& k : known) longest = std::max(longest, k.recompute);
    longest_ = grid.rounded_up(longest);
    for (const Known& k : known) {
      give(0, n - 1, Entry::saved, grid.memory(k.low).count, grid.memory(k.high).count,
           longest_ - grid.rounded_up(k.recompute));
    }
    for (std::size_t length = n; length > 0; --length) {
      for (std::size_t i = 0; i + length <= n; ++i) {
        for (const Entry entry : {Entry::saved, Entry::checkpoint}) visit(i, i + length - 1, entry);
      }
    }
  }

  std::vector<Part> take_parts() { return std::move(parts_); }

 private:
  using Row = RotorGrid::Row;
  // What the rest takes, by the cell of the row's grid in which the memory is: cell k ends at point k, the last one at
  // what the sub-chain can use.
  struct Rest {
    std::size_t begin = 0;              // in rest_
    std::int64_t first = 0, last = -1;  // cells that were reached
    float least = 0;                    // of them
  };

  void give(std::size_t i, std::size_t l, Entry, std::int64_t low, std::int64_t high, float rest);
  void visit(std::size_t i, std::size_t l, Entry);

  const RotorGrid& grid_;
  float longest_ = 0;
  std::vector<Part> parts_;
  std::vector<Rest> rests_;
  std::vector<float> rest_;
};

RotorRegion::RotorRegion(const RotorGrid& grid, std::span<const Known> known)
    : parts_{Search(grid, known).take_parts()} {}

// The sub-chain is given between `low` and `high` bytes, the rest taking at least `rest`.
void RotorRegion::Search::give(std::size_t i, std::size_t l, Entry entry, std::int64_t low, std::int64_t high,
                               float rest) {
  if (entry == Entry::checkpoint && !grid_.conditions().entries_differ(i)) entry = Entry::saved;
  const Row& row = grid_.row(i, l, entry);
  low = std::max(std::min(low, row.enough), row.need);
  high = std::min(high, row.enough);
  if (low > high) return;
  const auto cell = [&row](std::int64_t bytes) {
    return std::clamp<std::int64_t>(row.at_or_above(bytes), 0, row.count);
  };
  std::int64_t first = cell(low);
  const std::int64_t last = cell(high);
  while (first <= last && !(rest + row.values[first] <= longest_)) ++first;
  if (first > last) return;
  if (first > 0) low = std::max(low, row.point(first - 1) + 1);
  Rest& reached = rests_[at(i, l, entry)];
  Part& part = parts_[at(i, l, entry)];
  if (!part.is_used()) {
    reached = {rest_.size(), first, last, rest};
    rest_.resize(rest_.size() + static_cast<std::size_t>(row.count) + 1, infinite_float);
    part = {low, high, 0};
  }
  reached.first = std::min(reached.first, first);
  reached.last = std::max(reached.last, last);
  reached.least = std::min(reached.least, rest);
  part.low = std::min(part.low, low);
  part.high = std::max(part.high, high);
  float* const cells = rest_.data() + reached.begin;
  for (std::int64_t k = first; k <= last; ++k) cells[k] = std::min(cells[k], rest);
}

void RotorRegion::Search::visit(std::size_t i, std::size_t l, Entry entry) {
  Part& part = parts_[at(i, l, entry)];
  if (!part.is_used()) return;
  const Rest reached = rests_[at(i, l, entry)];
  part.longest = grid_.rounded_up(Seconds{longest_ - reached.least});
  if (i == l) return;
  const Row& row = grid_.row(i, l, entry);
  const RotorConditions& conditions = grid_.conditions();
  const ChainModel& model = grid_.model();
  // Memory of a cell that the sub-chain may be given.
  const auto low_of = [&](std::int64_t k) { return k > 0 ? std::max(part.low, row.point(k - 1) + 1) : part.low; };
  const auto high_of = [&](std::int64_t k) { return k < row.count ? std::min(part.high, row.point(k)) : part.high; };
  const auto rest_of = [&](std::int64_t k) { return rest_[reached.begin + static_cast<std::size_t>(k)]; };

  const std::int64_t kept = conditions.kept(i, entry).count, all = conditions.all(i, l, entry).count;
  for (std::int64_t k = reached.first; k <= reached.last; ++k) {
    const float rest = rest_of(k);
    if (rest == infinite_float || high_of(k) < all) continue;
    give(i + 1, l, Entry::saved, std::max(low_of(k), all) - kept, high_of(k) - kept, rest);
  }
  if (part.low >= row.enough) return;  // saves everything
  const std::int64_t held = conditions.held(l).count;
  std::int64_t run = 0;
  float nograd = 0;
  for (std::size_t j = i + 1; j <= l && conditions.recomputable(j - 1); ++j) {
    nograd += static_cast<float>(model.nograd[j - 1].value);
    run = std::max(run, conditions.null_step(i, j - 1).count);
    if (held + run > part.high || nograd + reached.least > longest_) break;
    const Row& late = grid_.row(j, l, Entry::checkpoint);
    const Row& early = grid_.early(i, j - 1, entry);
    const std::int64_t x = model.x[j].count, low = std::max({held + run, x + late.need, early.need});
    if (low > part.high) continue;
    const auto best = [&](std::int64_t bytes) {
      return std::pair{grid_.time(late, bytes - x), grid_.time(early, bytes)};
    };
    if (const auto [a, b] = best(part.high); !(reached.least + nograd + a + b <= longest_)) continue;
    for (std::int64_t k = reached.last; k >= reached.first; --k) {
      const std::int64_t high = high_of(k);
      if (high < low) break;
      const auto [a, b] = best(high);
      if (!(reached.least + nograd + a + b <= longest_)) break;
      const float rest = rest_of(k) + nograd;
      if (!(rest + a + b <= longest_)) continue;
      const std::int64_t from = std::max(low, low_of(k));
      give(j, l, Entry::checkpoint, from - x, high - x, rest + b);
      give(i, j - 1, entry, from, high, rest + a);
    }
  }
}

// Memory is cut into cells. A first pass over all choices bounds the front at the cells' edges; only where a choice may
// reach that bound inside a cell are its points gathered, sorted and reduced to the front.
struct RotorFronts::Scratch {
  RotorRegion::Part used;  // what is asked for
  std::vector<Choice> choices;
  std::vector<double> upper;  // by cell: the limit, or no less than the best time at its lower edge
  std::vector<Point> points, sorted;
  std::vector<std::uint32_t> cell;   // of each point
  std::vector<std::uint32_t> begin;  // by cell: its first point in `sorted`
};

RotorFronts::RotorFronts(ChainModel model, FrontRounding rounding, std::size_t most_points, FrontWindow window)
    : model_{std::move(model)},
      conditions_{model_},
      rounding_{rounding},
      most_points_{most_points},
      region_{std::move(window.region)} {
  EXPECTS(most_points > 1);
  const Bytes peak = evaluate(model_, store_all_sequence(model_.stages())).peak;
  base_ = (model_.resident + model_.x[0]).count;
  enough_ = peak.count - base_;
  range_ = std::clamp<std::int64_t>(std::min(peak, window.most).count - base_, 0, enough_);
  const std::size_t most_cells = range_ < enough_ ? 256 : 1024;  // fewer points are left of a window
  cells_ = static_cast<std::int64_t>(std::clamp<std::size_t>(most_points, 128, most_cells));
  cell_ = range_ / cells_ + 1;
  build();
}

void RotorFronts::build() {
  const std::size_t n = model_.stages();
  const std::vector<Point> zero{{0, 0}};
  nothing_ = store(zero);
  unused_ = store({});
  fronts_.resize(n * (n + 1));
  Scratch scratch;
  scratch.upper.resize(static_cast<std::size_t>(cells_) + 1);
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t i = l + 1; i-- > 0;) {
      const Front saved = fronts_[at(i, l, Entry::saved)] = front_of(i, l, Entry::saved, scratch);
      fronts_[at(i, l, Entry::checkpoint)] =
          conditions_.entries_differ(i) ? front_of(i, l, Entry::checkpoint, scratch) : saved;
    }
  }
}

RotorRegion::Part RotorFronts::used(std::size_t i, std::size_t l, Entry entry) const {
  if (!region_) return {0, range_, infinite_double};
  return region_->part(i, l, conditions_.entries_differ(i) ? entry : Entry::saved);
}

RotorFronts::Front RotorFronts::front_of(std::size_t i, std::size_t l, Entry entry, Scratch& scratch) {
  scratch.used = used(i, l, entry);
  if (!scratch.used.is_used()) return unused_;
  find_choices(i, l, entry, scratch.choices);
  return combine(scratch);
}

void RotorFronts::find_choices(std::size_t i, std::size_t l, Entry entry, std::vector<Choice>& choices) const {
  choices.clear();
  const auto add = [&](Choice choice) {
    if (choice.late->points.empty() || choice.early->points.empty()) return;
    choice.low =
        std::max({choice.low, choice.shift + choice.late->points.front().bytes, choice.early->points.front().bytes});
    if (choice.low <= range_) choices.push_back(choice);
  };
  const Front* const after = i == l ? &nothing_ : &front(i + 1, l, Entry::saved);
  add({i, i == l ? 0 : conditions_.kept(i, entry).count, conditions_.all(i, l, entry).count, 0, after, &nothing_});
  const double most = used(i, l, entry).longest;
  double nograd = 0;
  Bytes run;
  for (std::size_t j = i + 1; j <= l && conditions_.recomputable(j - 1); ++j) {
    nograd += model_.nograd[j - 1].value;
    if (nograd > most) break;
    run = std::max(run, conditions_.null_step(i, j - 1));
    add({j, model_.x[j].count, (conditions_.held(l) + run).count, nograd, &front(j, l, Entry::checkpoint),
         &front(i, j - 1, entry)});
  }
}

RotorFronts::Front RotorFronts::combine(Scratch& scratch) {
  bound(scratch);
  gather(scratch);
  sort(scratch);
  keep_front(scratch.sorted);
  return store(scratch.sorted);
}

void RotorFronts::bound(Scratch& scratch) const {
  std::vector<double>& upper = scratch.upper;
  const std::int64_t low = scratch.used.low / cell_;
  // From here on no later choice, with more forwards before its parts, is better.
  std::int64_t high = scratch.used.high / cell_ + 1;
  std::fill(upper.begin() + low, upper.begin() + high, scratch.used.longest);
  for (const Choice& choice : scratch.choices) {
    while (high > low && upper[static_cast<std::size_t>(high - 1)] <= choice.nograd) --high;
    const std::int64_t back = choice.shift / cell_ + (choice.shift % cell_ != 0 ? 1 : 0);
    const std::int64_t first = std::max({low, back, (choice.low + cell_ - 1) / cell_});
    lower_to(upper.data() + first, choice.late->edges + (first - back), choice.early->edges + first, choice.nograd,
             high - first);
  }
}

void RotorFronts::gather(Scratch& scratch) const {
  scratch.points.clear();
  scratch.cell.clear();
  const double* const upper = scratch.upper.data();
  const auto [used_low, used_high, longest] = scratch.used;
  std::int64_t high = used_high / cell_ + 1;
  for (const Choice& choice : scratch.choices) {
    while (high > 0 && upper[high - 1] < choice.nograd) --high;
    std::int64_t c = std::max(choice.low, used_low) / cell_;
    if (c >= high) continue;
    // The best time within a cell is that at its upper edge; of the late part, which is shifted, one edge further on.
    const std::int64_t back = choice.shift / cell_;
    const double* const late = choice.late->edges + (c + 1 - back);
    const double* const early = choice.early->edges + (c + 1);
    const std::int64_t low = c, count = high - c;
    for (c = 0; (c = first_reaching(upper + low, late, early, choice.nograd, c, count)) < count;) {
      const std::int64_t first = low + c;
      while (c < count && choice.nograd + late[c] + early[c] <= upper[low + c]) ++c;
      gather(choice, std::max({choice.low, used_low, first * cell_}), std::min((low + c) * cell_, used_high + 1),
             scratch);
    }
  }
}

// The last point of at most `bytes`; there is one. Without branches, which the processor could not foresee.
const RotorFronts::Point* RotorFronts::point_at(std::span<const Point> points, std::int64_t bytes) {
  const Point* first = points.data();
  for (std::size_t count = points.size(); count > 1;) {
    const std::size_t half = count / 2;
    first += first[half].bytes <= bytes ? half : 0;
    count -= half;
  }
  return first;
}

// The steps of a choice's time in [first, end), the time at `first` included, where they reach the bound.
void RotorFronts::gather(const Choice& choice, std::int64_t first, std::int64_t end, Scratch& scratch) const {
  auto late = point_at(choice.late->points, first - choice.shift);
  auto early = point_at(choice.early->points, first);
  const Point* const late_end = &choice.late->points.back();
  const Point* const early_end = &choice.early->points.back();
  std::int64_t c = first / cell_;
  for (std::int64_t bytes = first; bytes < end;) {
    while (bytes >= (c + 1) * cell_) ++c;
    const double seconds = choice.nograd + late->seconds + early->seconds;
    if (seconds <= scratch.upper[static_cast<std::size_t>(c)]) {
      scratch.points.push_back({bytes, seconds});
      scratch.cell.push_back(static_cast<std::uint32_t>(c));
    }
    const std::int64_t next_late = late != late_end ? (late + 1)->bytes + choice.shift : end;
    const std::int64_t next_early = early != early_end ? (early + 1)->bytes : end;
    bytes = std::min(next_late, next_early);
    if (next_late == bytes && late != late_end) ++late;
    if (next_early == bytes && early != early_end) ++early;
  }
}

// By cell first, by counting, then within each cell.
void RotorFronts::sort(Scratch& scratch) const {
  std::vector<std::uint32_t>& begin = scratch.begin;
  begin.assign(static_cast<std::size_t>(cells_) + 2, 0);
  for (const std::uint32_t c : scratch.cell) ++begin[c + 2];
  for (std::size_t c = 2; c < begin.size(); ++c) begin[c] += begin[c - 1];
  scratch.sorted.resize(scratch.points.size());
  for (std::size_t p = 0; p < scratch.points.size(); ++p) {
    scratch.sorted[begin[scratch.cell[p] + 1]++] = scratch.points[p];
  }
  for (std::size_t c = 0; c + 1 < begin.size(); ++c) {
    if (begin[c + 1] - begin[c] < 2) continue;
    std::sort(
        scratch.sorted.begin() + begin[c], scratch.sorted.begin() + begin[c + 1],
        [](const Point& a, const Point& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds; });
  }
}

// Of the sorted points those that are faster than all before them.
void RotorFronts::keep_front(std::vector<Point>& points) {
  std::size_t kept = 0;
  for (const Point& point : points) {
    if (kept == 0 || point.seconds < points[kept - 1].seconds) points[kept++] = point;
  }
  points.resize(kept);
  if (kept <= most_points_) return;
  round(points);
  exact_ = false;
}

// Groups of points that are within 1 / most_points of the front's range become one point each.
void RotorFronts::round(std::vector<Point>& points) const {
  const double width = (points.front().seconds - points.back().seconds) / static_cast<double>(most_points_);
  const Point last = points.back();
  std::size_t kept = 0;
  double group = infinite_double;  // time of the group's first point
  for (const Point& point : points) {
    if (group - point.seconds > width) {
      group = point.seconds;
      points[kept++] = point;
    } else if (rounding_ == FrontRounding::down) {
      points[kept - 1].seconds = point.seconds;
    }
  }
  points.resize(kept);
  if (last.seconds < points.back().seconds) points.push_back(last);
}

RotorFronts::Front RotorFronts::store(std::span<const Point> points) {
  const std::size_t edge_count = static_cast<std::size_t>(cells_) + 1;
  if (points.size() > points_left_) {
    points_left_ = std::max(block_points, points.size());
    point_blocks_.push_back(std::make_unique_for_overwrite<Point[]>(points_left_));
    next_point_ = point_blocks_.back().get();
  }
  std::ranges::copy(points, next_point_);
  Front front{{next_point_, points.size()}, nullptr};
  next_point_ += points.size();
  points_left_ -= points.size();
  points_ += points.size();

  edge_blocks_.push_back(std::make_unique_for_overwrite<double[]>(edge_count));
  double* const edges = edge_blocks_.back().get();
  std::int64_t c = 0;
  double seconds = infinite_double;
  for (const Point& point : points) {
    for (; c * cell_ < point.bytes; ++c) edges[c] = seconds;
    seconds = point.seconds;
  }
  std::fill(edges + c, edges + edge_count, seconds);
  front.edges = edges;
  return front;
}

double RotorFronts::time(const Front& front, std::int64_t bytes) {
  const auto after = std::ranges::upper_bound(front.points, bytes, {}, &Point::bytes);
  if (after == front.points.begin()) return infinite_double;
  return std::prev(after)->seconds;
}

double RotorFronts::time(const Choice& choice, std::int64_t bytes) {
  if (bytes < choice.low) return infinite_double;
  return choice.nograd + time(*choice.late, bytes - choice.shift) + time(*choice.early, bytes);
}

Bytes RotorFronts::smallest_feasible() const {
  const std::span<const Point> points = whole().points;
  return Bytes{base_ + (points.empty() ? range_ : points.front().bytes)};
}

std::vector<Bytes> RotorFronts::steps() const {
  std::vector<Bytes> budgets;
  for (const Point& point : whole().points) {
    if (point.bytes < enough_) budgets.push_back(Bytes{base_ + point.bytes});
  }
  return budgets;
}

std::optional<Seconds> RotorFronts::recompute(Bytes budget) const {
  if (budget.count - base_ >= enough_) return Seconds{0};
  EXPECTS(budget.count - base_ <= range_);
  const double seconds = time(whole(), budget.count - base_);
  if (seconds == infinite_double) return std::nullopt;
  return Seconds{seconds};
}

std::optional<ChainSequence> RotorFronts::solve(Bytes budget) const {
  EXPECTS(rounding_ == FrontRounding::up);
  if (!recompute(budget)) return std::nullopt;
  if (budget.count - base_ >= enough_) return store_all_sequence(model_.stages());
  ChainSequence sequence;
  append(sequence, 0, model_.stages() - 1, Entry::saved, budget.count - base_);
  return sequence;
}

// The first choice that is as fast as the front; saving comes first, then the smallest j.
void RotorFronts::append(ChainSequence& sequence, std::size_t i, std::size_t l, Entry entry, std::int64_t bytes) const {
  using Kind = ChainStep::Kind;
  std::vector<Choice> choices;
  find_choices(i, l, entry, choices);
  const double best = time(front(i, l, entry), bytes);
  const auto choice = std::ranges::find_if(choices, [&](const Choice& c) { return time(c, bytes) <= best; });
  EXPECTS(choice != choices.end());
  if (choice->j == i) {
    sequence.push_back({Kind::forward_saving, i});
    if (i < l) append(sequence, i + 1, l, Entry::saved, bytes - choice->shift);
    sequence.push_back({Kind::backward, i});
    return;
  }
  for (std::size_t k = i; k < choice->j; ++k) sequence.push_back({Kind::forward, k});
  append(sequence, choice->j, l, Entry::checkpoint, bytes - choice->shift);
  append(sequence, i, choice->j - 1, entry, bytes);
}

}  // namespace plimsoll
