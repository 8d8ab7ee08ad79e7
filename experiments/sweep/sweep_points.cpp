#include "experiments/sweep/sweep_points.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "experiments/study/build_name.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/result_fields.h"
#include "experiments/study/within.h"
#include "experiments/sweep/bound_curve.h"
#include "experiments/sweep/mesh_record.h"
#include "experiments/sweep/timeline_record.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/compose/transformed.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// The place of a case in each of its lists; the last one turns fastest.
struct CaseIndex {
  std::size_t trace, platform, micro_batches, optimizer;
};

CaseIndex case_at(const Experiment& e, std::size_t index) {
  EXPECTS(index < cases(e));
  CaseIndex at{};
  at.optimizer = index % e.optimizers.size();
  index /= e.optimizers.size();
  at.micro_batches = index % e.micro_batches.size();
  index /= e.micro_batches.size();
  at.platform = index % e.platforms.size();
  at.trace = index / e.platforms.size();
  return at;
}

Combination combination_at(const Experiment& e, const CombinedValues& values, std::size_t group) {
  const CaseIndex at = case_at(e, group / e.strategies.size());
  return {values[0][at.trace], values[1][at.platform], values[2][at.micro_batches], values[3][at.optimizer],
          values[4][group % e.strategies.size()]};
}

/// The name that an experiment gives to a trace or a platform, else its own.
std::string shown_name(const Experiment& e, const std::string& reference, const std::string& own) {
  const auto alias = e.aliases.find(reference);
  return alias == e.aliases.end() ? own : alias->second;
}

Bytes resolved(const BudgetEnd& end, const CaseFacts& facts) {
  if (const Bytes* bytes = std::get_if<Bytes>(&end)) return *bytes;
  if (const Share* share = std::get_if<Share>(&end)) {
    if (facts.store_all) return of(*share, *facts.store_all);
    throw InputError("memory: trace '" + facts.trace + "' on '" + facts.platform +
                     "' has no peak of store_all to take " + written(*share) + " of");
  }
  const std::optional<Bytes> found =
      std::get<BudgetMark>(end) == BudgetMark::smallest ? facts.smallest : facts.store_all;
  return found.value_or(facts.lower_bound_bytes);
}

/// What a transform changes is not the case's.
Question question_of_case(const Experiment& e, std::size_t case_index) {
  Question question = question_of(e, case_index * e.strategies.size());
  question.strategy = {};
  return question;
}

/// How every record begins.
Json head_of(const Experiment& e, std::size_t group, std::size_t place, const std::string& key) {
  Json head{{"point", group * budgets(e) + place}, {"case", group / e.strategies.size()}, {"build", build_name()}};
  if (!key.empty()) head["key"] = key;
  return head;
}

BudgetEnd end_of(const std::variant<Bytes, Share>& budget) {
  return std::visit([](auto end) { return BudgetEnd(end); }, budget);
}

}  // namespace

Json or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count) : Json(nullptr);
}

std::optional<Bytes> maybe_bytes(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return Bytes{json.get<std::int64_t>()};
}

std::size_t cases(const Experiment& e) {
  return e.traces.size() * e.platforms.size() * e.micro_batches.size() * e.optimizers.size();
}
std::size_t points(const Experiment& e) {
  return groups_of(e, {}).size() * budgets(e);
}

bool begins_at_smallest(const Experiment& e) {
  const BudgetRange* range = std::get_if<BudgetRange>(&e.memory);
  return range != nullptr && range->from == BudgetEnd(BudgetMark::smallest);
}

std::vector<std::optional<Bytes>> budgets_of(const Experiment& e, const CaseFacts& facts) {
  std::vector<std::optional<Bytes>> budgets;
  if (const BudgetList* list = std::get_if<BudgetList>(&e.memory)) {
    for (const BudgetList::value_type& each : *list) {
      budgets.push_back(each ? std::optional(resolved(end_of(*each), facts)) : std::nullopt);
    }
    return budgets;
  }
  const auto& range = std::get<BudgetRange>(e.memory);
  const Bytes from = resolved(range.from, facts), to = resolved(range.to, facts);
  if (from > to) {
    throw InputError("memory: for trace '" + facts.trace + "' on '" + facts.platform + "' the range begins at " +
                     std::to_string(from.count) + " B and ends below, at " + std::to_string(to.count) + " B");
  }
  const bool is_log = range.scale == BudgetScale::log;
  if (is_log && from <= Bytes{}) {
    throw InputError("memory: for trace '" + facts.trace + "' on '" + facts.platform +
                     "' the range begins at 0 B, from where there are no ratios");
  }
  for (const Bytes b : is_log ? by_ratio(from, to, range.count) : evenly(from, to, range.count)) {
    budgets.emplace_back(b);
  }
  return budgets;
}

std::vector<std::size_t> groups_of(const Experiment& e, Shard shard) {
  const CombinedValues values = values_of(e);
  std::vector<std::size_t> mine;
  std::size_t asked = 0;
  for (std::size_t g = 0; g < cases(e) * e.strategies.size(); ++g) {
    if (!e.selection.is_everything() && !is_asked(e.selection, values, combination_at(e, values, g))) continue;
    if (asked++ % shard.n == shard.k - 1) mine.push_back(g);
  }
  return mine;
}

bool asks(const Experiment& e, std::size_t case_index, std::size_t strategy) {
  if (e.selection.is_everything()) return true;
  const CombinedValues values = values_of(e);
  return is_asked(e.selection, values, combination_at(e, values, case_index * e.strategies.size() + strategy));
}

Question question_of(const Experiment& e, std::size_t group) {
  const CaseIndex at = case_at(e, group / e.strategies.size());
  Question question = asked_of_all(e);
  question.trace = e.traces[at.trace];
  question.platform = e.platforms[at.platform];
  question.strategy = e.strategies[group % e.strategies.size()];
  question.micro_batches = e.micro_batches[at.micro_batches];
  question.optimizer = e.optimizers[at.optimizer];
  return question;
}

CaseFacts facts_of(const Experiment& e, const SweepInputs& inputs, std::size_t case_index) {
  const Question question = question_of_case(e, case_index);
  const ProblemOutcome made = inputs.problem(question);
  if (const std::string* why = std::get_if<std::string>(&made)) return impossible_case(e, case_index, *why);
  const Problem& problem = std::get<Problem>(made);
  const LowerBounds bounds = lower_bounds(problem, 1);
  const Pass store_all = pass_of(store_all_strategy);
  return {.trace = question.trace,
          .platform = question.platform,
          .model = shown_name(e, question.trace, problem.graph.name),
          .machine = shown_name(e, question.platform, problem.platform.name),
          .micro_batches = question.micro_batches,
          .optimizer = std::string(written(question.optimizer)),
          .times_rescaled = problem.times_rescaled,
          .capacity = capacity_of(problem.platform),
          .store_all = smallest_feasible(problem, std::span(&store_all, 1)),
          .smallest = {},
          .lower_bound_bytes = bounds.memory,
          .lower_bound = bounds.time(),
          .budgets = {},
          .bound_curves = {},
          .impossible = {}};
}

std::optional<Bytes> smallest_of(const Experiment& e, const SweepInputs& inputs, std::size_t case_index,
                                 std::size_t strategy) {
  const Question question = question_of(e, case_index * e.strategies.size() + strategy);
  if (asks_cluster(question)) return std::nullopt;  // only a search within some memory tells
  return smallest_feasible(std::get<Problem>(inputs.problem(question)), question.strategy.passes);
}

Json bound_curves_of(const Experiment& e, const SweepInputs& inputs, std::size_t case_index, const CaseFacts& facts) {
  if (!facts.store_all) return Json::array();
  const ProblemOutcome made = inputs.problem(question_of_case(e, case_index));
  return bound_curves_json(std::get<Problem>(made), facts.lower_bound_bytes, *facts.store_all);
}

CaseFacts impossible_case(const Experiment& e, std::size_t case_index, const std::string& reason) {
  const Question question = question_of(e, case_index * e.strategies.size());
  CaseFacts facts{.trace = question.trace,
                  .platform = question.platform,
                  .model = shown_name(e, question.trace, question.trace),
                  .machine = shown_name(e, question.platform, question.platform),
                  .micro_batches = question.micro_batches,
                  .optimizer = std::string(written(question.optimizer)),
                  .impossible = reason};
  facts.budgets.resize(budgets(e));
  if (const BudgetList* list = std::get_if<BudgetList>(&e.memory)) {
    for (std::size_t b = 0; b < list->size(); ++b) {
      if (!(*list)[b]) continue;
      if (const Bytes* bytes = std::get_if<Bytes>(&*(*list)[b])) facts.budgets[b] = *bytes;
    }
  }
  return facts;
}

bool is_of_limits(const std::string& reason) {
  return reason.starts_with("stopped: ");
}

Json to_json(const CaseFacts& facts) {
  Json budgets = Json::array();
  for (const std::optional<Bytes>& b : facts.budgets) budgets.push_back(or_null(b));
  Json json{{"trace", facts.trace},
            {"platform", facts.platform},
            {"model", facts.model},
            {"machine", facts.machine},
            {"micro_batches", facts.micro_batches},
            {"optimizer", facts.optimizer},
            {"times_rescaled", facts.times_rescaled},
            {"capacity_bytes", or_null(facts.capacity)},
            {"store_all_bytes", or_null(facts.store_all)},
            {"smallest_feasible_bytes", or_null(facts.smallest)},
            {"lower_bound_bytes", facts.lower_bound_bytes.count},
            {"lower_bound_s", facts.lower_bound.value},
            {"budgets_bytes", std::move(budgets)},
            {"bound_curves", facts.bound_curves.value_or(Json(nullptr))}};
  if (!facts.impossible.empty()) json["impossible"] = facts.impossible;
  return json;
}

CaseFacts case_facts(const Json& json) {
  CaseFacts facts{.trace = json.at("trace"),
                  .platform = json.at("platform"),
                  .model = json.at("model"),
                  .machine = json.at("machine"),
                  .micro_batches = json.at("micro_batches"),
                  .optimizer = json.at("optimizer"),
                  .times_rescaled = json.at("times_rescaled"),
                  .capacity = maybe_bytes(json.at("capacity_bytes")),
                  .store_all = maybe_bytes(json.at("store_all_bytes")),
                  .smallest = maybe_bytes(json.at("smallest_feasible_bytes")),
                  .lower_bound_bytes = {json.at("lower_bound_bytes").get<std::int64_t>()},
                  .lower_bound = {json.at("lower_bound_s").get<double>()},
                  .budgets = {},
                  .bound_curves = {},
                  .impossible = json.value("impossible", "")};
  if (const Json& curves = json.at("bound_curves"); !curves.is_null()) facts.bound_curves = curves;
  for (const Json& b : json.at("budgets_bytes")) facts.budgets.push_back(maybe_bytes(b));
  return facts;
}

Json unanswered_point(const Experiment& e, std::size_t group, std::size_t place, std::optional<Bytes> budget,
                      const std::string& reason, const std::string& key) {
  Json json = head_of(e, group, place, key);
  const Outcome outcome = is_of_limits(reason) ? Outcome::stopped : Outcome::refused;
  const Question question = question_of(e, group);
  json.update(to_json({.question = question, .budget = budget, .outcome = outcome, .reason = reason}));
  return json;
}

bool CaseProblem::is_for(std::size_t case_index, std::span<const Pass> passes) const {
  if (!problem_ || problem_->transformed || case_ != case_index) return false;
  if (backward_ != backward_for(passes) || inner_ != inner_for(passes)) return false;
  return std::ranges::none_of(passes, [&](const Pass& pass) {
    const bool takes_other_model = problem_->chain ? problem_->of_ops != nullptr : pass.strategy->chains_only;
    return takes_other_model || changes_problem(*pass.strategy);
  });
}

const Problem& CaseProblem::of(const Experiment& e, const SweepInputs& inputs, std::size_t group) {
  const Question question = question_of(e, group);
  const std::span<const Pass> passes = question.strategy.passes;
  const std::size_t case_index = group / e.strategies.size();
  if (is_for(case_index, passes)) return *problem_;
  problem_.reset();
  const auto started = std::chrono::steady_clock::now();
  ProblemOutcome made = inputs.problem(question);
  made_in_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  // The case has a problem, but not with every split of backwards and every packing.
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  problem_ = std::get<Problem>(std::move(made));
  case_ = case_index;
  backward_ = backward_for(passes);
  inner_ = inner_for(passes);
  return *problem_;
}

namespace {

/// Each budget has a search of its own. The record is that of the plan that is chosen, which `candidates` name, under
/// what the experiment asks.
void answer_cluster_points(const Experiment& e, const SweepInputs& inputs, std::size_t group,
                           std::span<const std::optional<Bytes>> all_budgets, std::span<const std::size_t> wanted,
                           const std::function<void(const Json&)>& record, std::span<const std::string> keys) {
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    const std::size_t place = wanted[w];
    const Question asked = question_of(e, group);
    Question within = asked;
    if (all_budgets[place]) within.memory = *all_budgets[place];
    AnsweredQuestion made = answered_by_cluster(within, inputs.trace(asked), inputs.platform(asked));
    made.question.trace = asked.trace;
    made.question.strategy = asked.strategy;
    made.question.micro_batches = asked.micro_batches;
    Json json = head_of(e, group, place, keys.empty() ? "" : keys[w]);
    json.update(to_json(result_of(made.question, made.problem, made.answer)));
    if (e.timelines && made.answer.feasible()) {
      if (made.problem.mesh) json["mesh"] = mesh_record(made.problem);
      json["timeline"] = timeline_record(made.problem, *made.answer.schedule, *made.answer.timeline);
    }
    record(json);
  }
}

}  // namespace

void answer_points(const Experiment& e, const SweepInputs& inputs, CaseProblem& of_case, std::size_t group,
                   std::span<const std::optional<Bytes>> all_budgets, std::span<const std::size_t> wanted,
                   const std::function<void(const Json&)>& record, std::span<const std::string> keys) {
  EXPECTS(all_budgets.size() == budgets(e));
  const Question question = question_of(e, group);
  if (asks_cluster(question)) return answer_cluster_points(e, inputs, group, all_budgets, wanted, record, keys);
  const Problem& problem = of_case.of(e, inputs, group);
  std::vector<std::optional<Bytes>> asked;
  for (const std::size_t w : wanted) asked.push_back(all_budgets[w]);
  const auto take = [&](std::size_t place, const Answer& each) {
    Json json = head_of(e, group, wanted[place], keys.empty() ? "" : keys[place]);
    json.update(to_json(result_of(question, problem, each)));
    if (e.timelines && each.feasible()) {
      if (problem.mesh) json["mesh"] = mesh_record(problem);
      json["timeline"] = timeline_record(problem, *each.schedule, *each.timeline);
    }
    record(json);
  };
  if (question.within == Within::live) return answer(question, problem, asked, take, of_case.made_in_s());
  // A budget may have the plan of a smaller one, so that all are asked for, whichever are wanted.
  const auto take_wanted = [&](std::size_t budget, const Answer& each) {
    const auto place = std::ranges::find(wanted, budget);
    if (place != wanted.end()) take(static_cast<std::size_t>(place - wanted.begin()), each);
  };
  answer_within(question, problem, all_budgets, take_wanted, of_case.made_in_s());
}

std::vector<Bytes> evenly(Bytes from, Bytes to, std::uint32_t count) {
  EXPECTS(from <= to && count >= 2);
  __extension__ using Wide = __int128;
  std::vector<Bytes> budgets;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Wide part = Wide{(to - from).count} * i / (count - 1);
    budgets.push_back(from + Bytes{static_cast<std::int64_t>(part)});
  }
  return budgets;
}

std::vector<Bytes> by_ratio(Bytes from, Bytes to, std::uint32_t count) {
  EXPECTS(from > Bytes{} && from <= to && count >= 2);
  const double ratio = static_cast<double>(to.count) / static_cast<double>(from.count);
  std::vector<Bytes> budgets;
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    const double part = std::pow(ratio, static_cast<double>(i) / (count - 1));
    budgets.push_back(std::min(to, Bytes{std::llround(static_cast<double>(from.count) * part)}));
  }
  budgets.push_back(to);
  return budgets;
}

}  // namespace plimsoll
