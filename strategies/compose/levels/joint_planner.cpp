#include "strategies/compose/levels/joint_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/places.h"
#include "strategies/api/front.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/pipelining/cuts/asked_cut.h"
#include "strategies/pipelining/cuts/line_options.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/sapp_cut.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/planners/joint.h"
#include "strategies/pipelining/star_order.h"

namespace plimsoll {
namespace {

constexpr int most_moves = 100;  // of moves from one choice to the next

std::string numbers_text(const std::vector<std::uint32_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ":"));
}

Options with_cut(Options options, std::string cut) {
  options.change<LineOptions>().cut = std::move(cut);
  return options;
}

bool is_in_flight_free(const Options& options) {
  const TurnOptions* turns = options.get_if<TurnOptions>();
  return turns != nullptr && !turns->in_flight;
}

/// What the makers of the tapes add to a plan that was chosen among others.
std::string note_of(std::string_view cut, std::string_view in_flight) {
  return in_flight.empty() ? fmt::format("cut={}", cut) : fmt::format("cut={}, in_flight={}", cut, in_flight);
}

}  // namespace

bool is_cut_jointly(const Pass& pass) {
  const LineOptions* line = pass.options.get_if<LineOptions>();
  return line != nullptr && line->cut == joint_cut;
}

JointPlanner::JointPlanner(const Problem& problem, const Pass& partitioning, PlansByPartition& plans)
    : problem_(problem),
      pass_(partitioning),
      plans_(plans),
      in_flight_is_free_(is_in_flight_free(partitioning.options)) {
  const std::optional<Bytes> unlimited;
  const Options balanced = with_cut(pass_.options, "balanced");
  judge(problem, std::span(&pass_, 1));
  const auto made = pass_.strategy->partition(problem, balanced, std::span(&unlimited, 1));
  balanced_ = std::get<std::shared_ptr<const Partition>>(made.front());
  waiting_ = waiting_in(*balanced_);
}

PartsOutcome JointPlanner::within(const std::optional<Bytes>& budget) {
  Tried best;
  for (const Choice& choice : other_cuts(budget)) try_out(best, choice, budget);
  for (const Choice& choice : joint_cuts(budget)) {
    improve(best, choice, budget, best.fits() ? Care::quick : Care::thorough);
  }
  std::optional<PlannedParts> star = star_parts(budget);
  if (!best.fits() && star) return *std::move(star);
  if (!best.fits()) shrink(best, budget);
  if (!best.fits()) {
    return Infeasible{"no cut that was tried fits with any level of memory",
                      std::get<Infeasible>(best.outcome).smallest, false};
  }
  for (int tries = 0; tries < most_moves;) {
    bool is_better = false;
    for (const Choice& choice : neighbours(best.choice)) {
      if (tries++ < most_moves && improve(best, choice, budget, Care::quick)) {
        is_better = true;
        break;
      }
    }
    if (!is_better) break;
  }
  improve(best, Choice(best.choice), budget, Care::thorough);
  // In the strategy's own order, too: what a quick look takes for too large may fit at other levels of memory.
  if (!best.choice.in_flight.empty()) improve(best, {best.choice.cut, {}}, budget, Care::thorough);
  std::string& note = std::get<PlannedParts>(best.outcome).note;  // of its order
  note = note_of(text_of(best.choice.cut), numbers_text(best.choice.in_flight)) + (note.empty() ? "" : "; ") + note;
  if (star) keep_better(best.outcome, PartsOutcome(*std::move(star)));
  return std::move(best.outcome);
}

bool JointPlanner::Tried::keep_better(const Choice& other, PartsOutcome made) {
  const bool is_other = plimsoll::keep_better(outcome, std::move(made));
  if (is_other) choice = other;
  return is_other;
}

/// Whether it fits and is faster than those before, or needs less where none has fitted.
bool JointPlanner::try_out(Tried& best, const Choice& choice, const std::optional<Bytes>& budget) {
  return best.keep_better(choice, plans_of(choice).within(budget));
}

/// Where nothing fits: all cuts with as little in flight as can be, if they are few. Else the one whose parts need the
/// least each for itself, then from what needs the least of all on, one border a stage further at a time while that
/// needs less.
void JointPlanner::shrink(Tried& best, const std::optional<Bytes>& budget) {
  const std::vector<Choice> all = few_choices();
  for (const Choice& choice : all) try_out(best, choice, budget);
  if (!all.empty()) return;
  if (const std::optional<Choice> least = least_choice()) try_out(best, *least, budget);
  for (int tries = 0; !best.fits() && tries < most_moves;) {
    const std::vector<Choice> around = neighbours(best.choice);
    const auto closer = std::ranges::find_if(
        around, [&](const Choice& choice) { return tries++ < most_moves && try_out(best, choice, budget); });
    if (closer == around.end()) return;
  }
}

/// Every cut that is possible; none where there are many.
std::vector<JointPlanner::Choice> JointPlanner::few_choices() const {
  std::vector<Choice> choices;
  for (StageCut& cut : all_cuts(problem_.chain->stages.size(), waiting_.size(), most_moves)) {
    Choice choice{std::move(cut), {}};
    if (in_flight_is_free_) choice.in_flight.assign(waiting_.size(), 1);
    if (is_possible(choice)) choices.push_back(std::move(choice));
  }
  return choices;
}

/// By what the memory strategies need of each part alone.
std::optional<JointPlanner::Choice> JointPlanner::least_choice() {
  const auto parts = static_cast<std::uint32_t>(waiting_.size());
  const bool weights_apart = balanced_->parts.front().cut_before_weights;
  const auto needs = [&](std::uint32_t first, std::uint32_t last, std::uint32_t part) -> std::optional<Bytes> {
    if (!is_trained(problem_, first, last)) return std::nullopt;
    Waiting waiting = waiting_[part];
    if (in_flight_is_free_) waiting.in_flight = 1;
    const auto [found, is_new] = needs_.try_emplace({first, last, waiting, std::nullopt});
    if (is_new) {
      const RangePart range(problem_, first, last, DeviceId{0}, weights_apart);
      found->second = plans_.least_budget_of({problem_, range.partition, range.id, waiting.in_flight, waiting.weights});
    }
    return found->second;
  };
  const auto stages = static_cast<std::uint32_t>(problem_.chain->stages.size());
  std::vector<std::size_t> first = least_memory_cut(stages, parts, needs);
  if (first.empty()) return std::nullopt;
  Choice choice{without_copies(std::move(first)), {}};
  if (in_flight_is_free_) choice.in_flight.assign(parts, 1);
  return choice;
}

/// Where in-flight counts are free they may follow from the planner's period, and a device may have several stages.
std::optional<PlannedParts> JointPlanner::star_parts(const std::optional<Bytes>& budget) {
  if (!in_flight_is_free_) return std::nullopt;
  const Options options = with_cut(pass_.options, std::string(star_cut));
  // What fits the budget in plain training may be slower than what the memory strategies bring into it.
  const std::array<std::optional<Bytes>, 2> asked{budget, std::nullopt};
  std::optional<PlannedParts> best;
  for (const PartitionOutcome& made : pass_.strategy->partition(problem_, options, asked)) {
    keep_faster(best, plan_in(plans_.of(std::get<std::shared_ptr<const Partition>>(made)).within(budget)));
  }
  return best;
}

std::vector<Bytes> JointPlanner::peaks_of_levels() {
  std::vector<Bytes> peaks;
  for (const CutRule rule : {CutRule::uniform, CutRule::balanced}) {
    const Choice choice{without_copies(cut_stages(*problem_.chain, waiting_.size(), rule)), {}};
    if (!is_possible(choice)) continue;
    const std::vector<Bytes> more = plans_of(choice).peaks_of_levels();
    peaks.insert(peaks.end(), more.begin(), more.end());
  }
  return peaks;
}

/// What all other values of the option give, planners with and without the limit of memory.
std::vector<JointPlanner::Choice> JointPlanner::other_cuts(const std::optional<Bytes>& budget) const {
  const auto devices = static_cast<std::uint32_t>(waiting_.size());
  std::vector<Choice> choices;
  for (const CutRule rule : {CutRule::balanced, CutRule::uniform}) {
    choices.push_back({without_copies(cut_stages(*problem_.chain, devices, rule)), {}});
  }
  const std::vector<Waiting> behind(waiting_.rbegin(), waiting_.rend());
  const bool weights_apart = balanced_->parts.front().cut_before_weights;
  for (const std::string_view planner : cut_planners()) {
    CutQuestion question{.planner = planner, .devices = devices, .copies = in_flight_is_free_};
    for (const bool is_limited : {false, true}) {
      if (is_limited && !budget) continue;
      if (is_limited) question.fits = plain_fits(problem_, *budget, weights_apart, behind);
      std::variant<StageCut, std::string> cut = planner_cut(problem_, question);
      if (StageCut* made = std::get_if<StageCut>(&cut)) choices.push_back({std::move(*made), {}});
    }
  }
  for (const bool is_limited : {false, true}) {
    const std::optional<Bytes> limit = is_limited ? budget : std::nullopt;
    if (is_limited && !limit) continue;
    auto cut = cut_by_sapp(problem_, devices, waiting_, weights_apart, limit);
    if (StageCut* made = std::get_if<StageCut>(&cut)) choices.push_back({std::move(*made), {}});
  }
  std::ranges::sort(choices);
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  std::erase_if(choices, [&](const Choice& choice) { return !is_possible(choice); });
  return choices;
}

/// With what waits in the strategy's own order, and where that is free, with what waits as little as the period allows.
std::vector<JointPlanner::Choice> JointPlanner::joint_cuts(const std::optional<Bytes>& budget) {
  const std::vector<Stage>& stages = problem_.chain->stages;
  JointProblem model{.stages = static_cast<std::uint32_t>(waiting_.size()),
                     .micro_batches = problem_.micro_batches,
                     .least = {},
                     .sent = std::vector<double>(stages.size()),
                     .returned = std::vector<double>(stages.size())};
  model.precision = 1e-3;
  RouteFinder routes(problem_.platform);
  const MemoryId here = problem_.platform.devices[0].memory;
  std::optional<Route> route;
  if (model.stages > 1 && problem_.platform.devices[1].memory != here) {
    route = routes.between(here, problem_.platform.devices[1].memory);
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Seconds least;
    for (const OpId op : {problem_.index->forward[i], problem_.index->backward[i],
                          problem_.index->weight.empty() ? no_op : problem_.index->weight[i]}) {
      if (op != no_op) least += duration_on(problem_, op, DeviceId{0}, Saving::keep);
    }
    model.least.push_back(least.value);
    if (i == 0 || !route) continue;
    model.sent[i] = (route->latency + boundary_bytes(*problem_.chain, i) / route->bandwidth).value;
    model.returned[i] = (route->latency + stages[i].input_gradient / route->bandwidth).value;
  }
  std::vector<Choice> choices;
  for (const bool is_free : {false, true}) {
    if (is_free && !in_flight_is_free_) continue;
    model.in_flight.clear();
    if (!is_free) {
      for (const Waiting& waiting : waiting_) model.in_flight.push_back(waiting.in_flight);
    }
    model.seconds = [&](std::uint32_t first, std::uint32_t last, std::uint32_t stage, std::uint32_t in_flight) {
      return seconds(first, last, {in_flight, waiting_[stage].weights}, budget);
    };
    constexpr std::size_t most = 6;
    std::vector<JointPlan> plans = plan_joint(model, 0.02);
    plans.resize(std::min(plans.size(), most));
    for (const JointPlan& plan : plans) {
      Choice choice{without_copies({plan.first.begin(), plan.first.end()}), {}};
      if (is_free) choice.in_flight = plan.in_flight;
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

/// Each border one stage on or back; each stage that may keep one micro-batch more or less.
std::vector<JointPlanner::Choice> JointPlanner::neighbours(const Choice& choice) const {
  std::vector<Choice> around;
  const std::size_t parts = choice.cut.first.size();
  for (std::size_t g = 1; g < parts; ++g) {
    for (const bool later : {false, true}) {
      Choice moved = choice;
      moved.cut.first[g] += later ? 1 : std::size_t(-1);
      around.push_back(std::move(moved));
    }
  }
  if (in_flight_is_free_ && !choice.cut.has_copies()) {
    for (std::size_t s = 0; s < parts; ++s) {
      for (const bool more : {false, true}) {
        Choice moved = choice;
        if (moved.in_flight.empty()) {
          for (const Waiting& waiting : waiting_) moved.in_flight.push_back(waiting.in_flight);
        }
        moved.in_flight[s] += more ? 1 : std::uint32_t(-1);
        around.push_back(std::move(moved));
      }
    }
  }
  std::erase_if(around, [&](const Choice& each) { return !is_possible(each); });
  return around;
}

bool JointPlanner::is_possible(const Choice& choice) const {
  const std::size_t stages = problem_.chain->stages.size();
  for (std::size_t g = 0; g < choice.cut.first.size(); ++g) {
    const std::size_t first = choice.cut.first[g],
                      last = g + 1 < choice.cut.first.size() ? choice.cut.first[g + 1] : stages;
    if (first >= last || last > stages || !is_trained(problem_, first, last)) return false;
    if (choice.cut.copies[g] > problem_.micro_batches) return false;
  }
  for (std::size_t s = 0; s < choice.in_flight.size(); ++s) {
    const std::uint32_t most = s == 0 ? problem_.micro_batches : choice.in_flight[s - 1];
    if (choice.in_flight[s] == 0 || choice.in_flight[s] > most) return false;
  }
  return true;
}

/// Of a micro-batch, on the first device.
std::optional<double> JointPlanner::seconds(std::uint32_t first, std::uint32_t last, const Waiting& waiting,
                                            const std::optional<Bytes>& budget) {
  const auto [found, is_new] = seconds_.try_emplace({first, last, waiting, budget});
  if (!is_new || !is_trained(problem_, first, last)) return found->second;
  const RangePart range(problem_, first, last, DeviceId{0}, balanced_->parts.front().cut_before_weights);
  const PartTask task{problem_, range.partition, range.id, waiting.in_flight, waiting.weights};
  const TapeOutcome outcome = plans_.tape_of(task, budget);
  if (const PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) {
    found->second = tape->makespan.value / problem_.micro_batches;
  }
  return found->second;
}

PartitionPlans& JointPlanner::plans_of(const Choice& choice) {
  std::shared_ptr<const Partition>& partition = partitions_[choice];
  if (partition == nullptr) {
    Options options = with_cut(pass_.options, text_of(choice.cut));
    if (!choice.in_flight.empty()) options.change<TurnOptions>().in_flight = numbers_text(choice.in_flight);
    const std::optional<Bytes> unlimited;
    partition = std::get<std::shared_ptr<const Partition>>(
        pass_.strategy->partition(problem_, options, std::span(&unlimited, 1)).front());
  }
  return plans_.of(partition);
}

bool JointPlanner::improve(Tried& best, const Choice& choice, const std::optional<Bytes>& budget, Care care) {
  PartitionPlans& own = plans_of(choice);
  std::optional<PlannedParts> made = care == Care::quick ? own.close_to(budget) : plan_in(own.within(budget));
  return made && best.keep_better(choice, *std::move(made));
}

}  // namespace plimsoll
