#include "experiments/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/build_name.h"
#include "experiments/study/exit_code.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/point_cache.h"
#include "experiments/sweep/point_key.h"
#include "experiments/sweep/point_numbers.h"
#include "experiments/sweep/rank_pool.h"
#include "experiments/sweep/record_check.h"
#include "experiments/sweep/sweep_estimate.h"
#include "experiments/sweep/sweep_inputs.h"
#include "experiments/sweep/sweep_points.h"
#include "experiments/sweep/sweep_store.h"
#include "experiments/sweep/task_pool.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/printable.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

// plimsoll sweep --dry-run: the points of an experiment, without any of them being planned.

std::string in_words(const BudgetEnd& end) {
  if (const Bytes* bytes = std::get_if<Bytes>(&end)) return format_bytes(*bytes);
  return to_json(end).get<std::string>();
}

std::string budgets_in_words(const Experiment& e) {
  if (const BudgetRange* range = std::get_if<BudgetRange>(&e.memory)) {
    return fmt::format("{} budgets from {} to {}", range->count, in_words(range->from), in_words(range->to));
  }
  std::string words;
  for (const BudgetList::value_type& budget : std::get<BudgetList>(e.memory)) {
    words += words.empty() ? "" : ", ";
    words += budget ? std::visit([](auto end) { return in_words(end); }, *budget) : "capacity";
  }
  return words;
}

/// A line a group with the numbers of its points and their budgets as the experiment states them, or why it can have no
/// answers; then how many there are. The exit code: 2 where some can have none, as a sweep of them has.
int list_points(const Experiment& e, const SweepInputs& inputs, Shard shard, std::ostream& out) {
  const std::vector<std::size_t> mine = groups_of(e, shard);
  const std::size_t each = budgets(e);
  const std::string memory = budgets_in_words(e);
  std::size_t refused = 0;
  for (const std::size_t group : mine) {
    const Question q = question_of(e, group);
    const GroupRefusal refusal = inputs.refusal(q);
    out << fmt::format("{:>8} to {:<8}  {} on {}", group * each, (group + 1) * each - 1, q.trace, q.platform);
    if (q.micro_batches > 1) out << fmt::format(", {} micro-batches", q.micro_batches);
    if (q.optimizer != Optimizer::none) out << fmt::format(", {}", written(q.optimizer));
    out << fmt::format("  {}  {}\n", q.strategy.text, refusal.why.empty() ? memory : "no answers: " + refusal.why);
    refused += refusal.is_error ? 1 : 0;
  }
  out << fmt::format("{}: {} points in {} groups", e.name, mine.size() * each, mine.size());
  if (refused > 0) out << fmt::format("; wrong: {} of the groups ('exclude' leaves them out)", refused);
  out << '\n';
  return refused > 0 ? exit_bad_input : 0;
}

// What must be known of an experiment's cases before their points can be answered, as far as it is known: planned once,
// by workers, and kept in the manifest.

class SweepFacts {
 public:
  /// Of the cases of these groups.
  SweepFacts(const Experiment&, const std::vector<std::size_t>& groups);

  /// Takes over what a manifest says of the same cases, if their files have these digests; of those that limits stopped
  /// only with the same limits.
  void reuse(const Json& manifest, const Json& digests);

  /// What is to be planned: first cases, then for those that are possible the least budgets of strategies and the
  /// curves of bounds.
  std::vector<Json> missing_cases() const;
  std::vector<Json> missing_smallest() const;
  std::vector<Json> missing_curves() const;

  /// What a worker does.
  static Json plan(const Experiment&, const SweepInputs&, const Json& task);

  void take(const Json& task, const Json& fact);
  void take_beyond_limits(const Json& task, const std::string& reason);

  /// What the task was about, for messages.
  std::string name_of(const Json& task) const;

  /// Makes the budgets of all cases of which everything is known. Calls `wrong` where that cannot be.
  template <class Wrong>
  void make_budgets(Wrong wrong) {
    for (auto& [index, facts] : cases_) {
      try {
        complete(index, facts);
      } catch (const InputError& error) {
        wrong(index, error);
      }
    }
  }

  const std::map<std::size_t, CaseFacts>& cases() const { return cases_; }

  /// As the manifest has them.
  Json cases_json() const;
  Json smallest_json() const;

 private:
  using Place = std::pair<std::size_t, std::string>;  // a case and a strategy
  struct Smallest {
    std::optional<Bytes> bytes;  ///< unset: the strategy cannot tell
    bool stopped = false;        ///< by the experiment's limits
  };

  void complete(std::size_t index, CaseFacts&) const;
  std::vector<std::string> strategies_of(std::size_t index) const;  ///< that are asked

  const Experiment& experiment_;
  std::set<std::size_t> wanted_;
  std::map<std::size_t, CaseFacts> cases_;
  std::map<Place, Smallest> smallest_;
};

/// What tells cases apart.
Json name_of_case(const Json& facts) {
  return {facts.at("trace"), facts.at("platform"), facts.at("micro_batches"), facts.at("optimizer")};
}

Json name_of_case(const Experiment& e, std::size_t index) {
  const Question question = question_of(e, index * e.strategies.size());
  return {question.trace, question.platform, question.micro_batches, written(question.optimizer)};
}

SweepFacts::SweepFacts(const Experiment& experiment, const std::vector<std::size_t>& groups) : experiment_(experiment) {
  for (const std::size_t g : groups) wanted_.insert(g / experiment.strategies.size());
}

std::vector<std::string> SweepFacts::strategies_of(std::size_t index) const {
  std::vector<std::string> asked;
  for (std::size_t s = 0; s < experiment_.strategies.size(); ++s) {
    if (asks(experiment_, index, s)) asked.push_back(experiment_.strategies[s].text);
  }
  return asked;
}

void SweepFacts::reuse(const Json& manifest, const Json& digests) {
  const Json of_manifest = manifest.at("identity").value("inputs", Json::object());
  std::map<std::string, std::size_t> by_name;
  for (const std::size_t c : wanted_) by_name[json_text(name_of_case(experiment_, c))] = c;
  const bool limits_hold =
      same_limits(manifest.at("identity").value("experiment", Json::object()), to_json(experiment_));
  for (const Json& one : manifest.at("cases")) {
    const auto found = by_name.find(json_text(name_of_case(one)));
    if (found == by_name.end() || !same_files_of(one, of_manifest, digests)) continue;
    CaseFacts facts = case_facts(one);
    if (!facts.impossible.empty() && !limits_hold) continue;
    facts.budgets.clear();
    facts.smallest.reset();
    cases_[found->second] = std::move(facts);
  }
  for (const Json& one : manifest.value("smallest", Json::array())) {
    const auto found = by_name.find(json_text(name_of_case(one)));
    const bool stopped = one.at("stopped");
    if (found == by_name.end() || (stopped && !limits_hold) || !same_files_of(one, of_manifest, digests)) continue;
    smallest_[{found->second, one.at("strategy")}] = {maybe_bytes(one.at("smallest_feasible_bytes")), stopped};
  }
}

std::vector<Json> SweepFacts::missing_cases() const {
  std::vector<Json> tasks;
  for (const std::size_t c : wanted_) {
    if (!cases_.contains(c)) tasks.push_back({{"case", c}});
  }
  return tasks;
}

std::vector<Json> SweepFacts::missing_smallest() const {
  std::vector<Json> tasks;
  if (!begins_at_smallest(experiment_)) return tasks;
  for (const auto& [index, facts] : cases_) {
    if (!facts.impossible.empty()) continue;
    for (const std::string& strategy : strategies_of(index)) {
      if (!smallest_.contains({index, strategy})) tasks.push_back({{"case", index}, {"smallest_of", strategy}});
    }
  }
  return tasks;
}

std::vector<Json> SweepFacts::missing_curves() const {
  constexpr std::size_t most = 100;  // nobody looks at more, and they take as long as the points
  std::vector<Json> tasks;
  if (plimsoll::cases(experiment_) > most) return tasks;
  for (const auto& [index, facts] : cases_) {
    if (facts.impossible.empty() && !facts.bound_curves) {
      tasks.push_back({{"case", index}, {"curves_between", to_json(facts)}});
    }
  }
  return tasks;
}

Json SweepFacts::plan(const Experiment& e, const SweepInputs& inputs, const Json& task) {
  const std::size_t index = task.at("case");
  if (task.contains("curves_between")) {
    return bound_curves_of(e, inputs, index, case_facts(task["curves_between"]));
  }
  if (!task.contains("smallest_of")) return to_json(facts_of(e, inputs, index));
  const auto found = std::ranges::find(e.strategies, task.at("smallest_of").get<std::string>(), &Pipeline::text);
  EXPECTS(found != e.strategies.end());
  return or_null(smallest_of(e, inputs, index, static_cast<std::size_t>(found - e.strategies.begin())));
}

void SweepFacts::take(const Json& task, const Json& fact) {
  const std::size_t index = task.at("case");
  if (task.contains("smallest_of")) {
    smallest_[{index, task["smallest_of"]}] = {maybe_bytes(fact), false};
  } else if (task.contains("curves_between")) {
    cases_.at(index).bound_curves = fact;
  } else {
    cases_[index] = case_facts(fact);
  }
}

void SweepFacts::take_beyond_limits(const Json& task, const std::string& reason) {
  const std::size_t index = task.at("case");
  if (task.contains("smallest_of")) {
    smallest_[{index, task["smallest_of"]}] = {std::nullopt, true};
  } else if (task.contains("curves_between")) {
    cases_.at(index).bound_curves = Json::array();  // no figure of them: the points are answered all the same
  } else {
    cases_[index] = impossible_case(experiment_, index, reason);
  }
}

std::string SweepFacts::name_of(const Json& task) const {
  const Question q = question_of(experiment_, task.at("case").get<std::size_t>() * experiment_.strategies.size());
  return fmt::format("trace {} on {}", q.trace, q.platform);
}

void SweepFacts::complete(std::size_t index, CaseFacts& facts) const {
  if (!facts.budgets.empty()) return;
  if (!facts.impossible.empty()) {
    facts.budgets = impossible_case(experiment_, index, facts.impossible).budgets;
    return;
  }
  if (begins_at_smallest(experiment_)) {
    for (const std::string& strategy : strategies_of(index)) {
      const auto found = smallest_.find({index, strategy});
      if (found == smallest_.end()) return;
      const std::optional<Bytes>& least = found->second.bytes;
      if (least && (!facts.smallest || *least < *facts.smallest)) facts.smallest = least;
    }
  }
  facts.budgets = budgets_of(experiment_, facts);
}

Json SweepFacts::cases_json() const {
  Json list = Json::array();
  for (const auto& [index, facts] : cases_) {
    Json one{{"case", index}};
    one.update(to_json(facts));
    list.push_back(std::move(one));
  }
  return list;
}

Json SweepFacts::smallest_json() const {
  Json list = Json::array();
  for (const auto& [place, least] : smallest_) {
    const Question q = question_of(experiment_, place.first * experiment_.strategies.size());
    list.push_back({{"trace", q.trace},
                    {"platform", q.platform},
                    {"micro_batches", q.micro_batches},
                    {"optimizer", written(q.optimizer)},
                    {"strategy", place.second},
                    {"smallest_feasible_bytes", or_null(least.bytes)},
                    {"stopped", least.stopped}});
  }
  return list;
}

namespace fs = std::filesystem;

Json budgets_json(const CaseFacts& facts) {
  Json list = Json::array();
  for (const std::optional<Bytes>& budget : facts.budgets) list.push_back(or_null(budget));
  return list;
}

Json identity_of(const Experiment& e, const SweepInputs& inputs) {
  return {{"version", program_version()}, {"experiment", to_json(e)}, {"inputs", inputs.digests()}};
}

/// What a worker does: facts, or the wanted points of a group.
TaskWork worker_of(const Experiment& e, const SweepInputs& inputs) {
  const auto problem = std::make_shared<CaseProblem>();
  return [&e, &inputs, problem](const Json& task, const std::function<void(const Json&)>& reply) {
    if (!task.contains("group")) return reply(SweepFacts::plan(e, inputs, task));
    std::vector<std::optional<Bytes>> all;
    for (const Json& b : task.at("budgets_bytes")) {
      all.push_back(b.is_null() ? std::nullopt : std::optional(Bytes{b.get<std::int64_t>()}));
    }
    const auto wanted = task.at("wanted").get<std::vector<std::size_t>>();
    answer_points(e, inputs, *problem, task.at("group"), all, wanted, reply,
                  task.at("keys").get<std::vector<std::string>>());
  };
}

TaskLimits limits_of(const Experiment& e) {
  return {.timeout = e.timeout, .memory = e.memory_limit};
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, const ExperimentFile& file, const SweepInputs& inputs)
      : options_(options),
        text_(file.text),
        experiment_(file.experiment),
        inputs_(inputs),
        identity_(identity_of(experiment_, inputs)),
        store_(options.folder, options.shard, identity_, options.disk != nullptr ? *options.disk : own_disk_),
        groups_(groups_of(experiment_, options.shard)),
        per_group_(budgets(experiment_)),
        facts_(experiment_, groups_),
        keys_(experiment_, inputs.digests()) {
    if (!options.cache.empty() && std::string_view(build_name()) == "unknown") {
      throw InputError("--cache: this build does not know its commit, so that nothing tells its answers from others'");
    }
    if (!options.cache.empty()) cache_.emplace(options.cache);
    for (const Json& manifest : store_.manifests_that_hold()) facts_.reuse(manifest, inputs.digests());
    if (const fs::path aside = options.resume ? fs::path() : store_.start_afresh(); !aside.empty()) {
      fmt::print(stderr, "{}: starting afresh, the results so far are in {}; --resume would keep them\n",
                 printable(store_.results().string()), printable(aside.string()));
    }
  }

  /// `place`: set where other ranks answer.
  int run(std::optional<RankPlace> place) {
    write_manifest("running");
    const Interruption interruption;
    const std::unique_ptr<TaskPool> own = place ? pool_of_ranks(*place, interruption) : own_pool(interruption);
    TaskPool& pool = *own;
    largest_first_ = place.has_value();
    if (!find_facts(pool)) return finish("interrupted", exit_interrupted);
    if (exit_code_ != 0) return finish("failed", exit_code_);  // wrong input is refused before anything runs
    keep_what_is_there();
    take_from_cache();
    write_manifest("running");
    if (!answer_groups(pool)) return finish("interrupted", exit_interrupted);
    return finish(exit_code_ == 0 ? "complete" : "failed", exit_code_);
  }

 private:
  std::unique_ptr<TaskPool> own_pool(const Interruption& interruption) {
    workers_ = std::max<std::size_t>(1, std::min(options_.jobs, groups_.size()));
    return std::make_unique<WorkerPool>(workers_, interruption, worker_of(experiment_, inputs_),
                                        limits_of(experiment_));
  }

  std::unique_ptr<TaskPool> pool_of_ranks(RankPlace place, const Interruption& interruption) {
    workers_ = static_cast<std::size_t>(place.size) - 1;
    return std::make_unique<RankPool>(place, interruption, json_text(identity_));
  }

  const CaseFacts& facts_of(std::size_t group) const {
    return facts_.cases().at(group / experiment_.strategies.size());
  }

  /// Budgets of the group's points that are not there yet, as places in the case's list.
  std::vector<std::size_t> missing(std::size_t group) const {
    std::vector<std::size_t> places;
    for (std::size_t b = 0; b < per_group_; ++b) {
      if (!done_.contains(group * per_group_ + b)) places.push_back(b);
    }
    return places;
  }

  /// `of`: of a group, what tells it from the others.
  void fail(std::string what, const TaskFailure& failure, Json of = Json::object()) {
    exit_code_ = std::max(exit_code_, failure.exit_code);
    const std::string line = fmt::format("{}: {}: {}\n", options_.experiment.string(), what, failure.message);
    if (told_.insert(line).second) fmt::print(stderr, "{}", printable(line));
    of.update({{"what", std::move(what)}, {"message", failure.message}, {"exit_code", failure.exit_code}});
    failures_.push_back(std::move(of));
  }

  bool find_facts(TaskPool& pool) {
    const std::vector<Json> missing = facts_.missing_cases();
    if (!plan_facts(pool, missing, "cases looked at")) return false;
    if (exit_code_ == 0 && !plan_facts(pool, facts_.missing_smallest(), "least budgets found")) return false;
    if (exit_code_ == 0 && !plan_facts(pool, facts_.missing_curves(), "curves of bounds drawn")) return false;
    if (exit_code_ != 0) return true;
    facts_.make_budgets([&](std::size_t index, const InputError& error) {
      fail(facts_.name_of({{"case", index}}), {2, error.what()});
    });
    return true;
  }

  bool plan_facts(TaskPool& pool, const std::vector<Json>& tasks, std::string_view what) {
    Progress progress(tasks.size(), what, options_.quiet);
    SweepEstimate estimate(workers_);
    const auto group_of = [&](const Json& task) {
      const Question q = question_of(experiment_, task["case"].get<std::size_t>() * experiment_.strategies.size());
      return SweepEstimate::Group{task.value("smallest_of", ""),
                                  static_cast<double>(q.micro_batches * inputs_.size_of(q.trace)),
                                  facts_.name_of(task)};
    };
    for (const Json& task : tasks) {
      const SweepEstimate::Group group = group_of(task);
      estimate.expect(group.strategy, group.work);
    }
    return pool.run(tasks, {.record =
                                [&](std::size_t t, std::string_view fact) {
                                  facts_.take(tasks[t], Json::parse(fact));
                                  progress.add();
                                },
                            .failed =
                                [&](std::size_t t, const TaskFailure& failure) {
                                  progress.clear_line();
                                  progress.add();
                                  if (failure.beyond_limits) {
                                    return facts_.take_beyond_limits(tasks[t], failure.message);
                                  }
                                  fail(facts_.name_of(tasks[t]), failure);
                                },
                            .tick =
                                [&] {
                                  show(progress, estimate);
                                  tell_how_far();
                                },
                            .started = [&](std::size_t t) { estimate.started(t, group_of(tasks[t])); },
                            .ended = [&](std::size_t t) { estimate.finished(t); }});
  }

  static void show(Progress& progress, const SweepEstimate& estimate) {
    if (const std::optional<SweepEstimate::Left> left = estimate.left())
      progress.tell_left(left->seconds, left->at_least);
    progress.tell_now(estimate.now());
    progress.show();
  }

  /// Of an earlier sweep into this folder.
  void keep_what_is_there() {
    if (store_.found() == 0) return;
    const Kept kept = store_.keep(PointNumbers(identity_["experiment"], facts_.cases()),
                                  [&](std::size_t point) { return key_of(point); });
    done_ = kept.points;
    if (kept.aside.empty()) return;
    std::string what;
    if (kept.of_other_builds > 0) {
      what = fmt::format("{} results are of other builds of the program than {} and are run again",
                         kept.of_other_builds, build_name());
    }
    if (kept.of_other_points > 0) {
      what += fmt::format("{}{} are of no point of this experiment with its files, or were stopped by other limits",
                          what.empty() ? "" : "; ", kept.of_other_points);
    }
    fmt::print(stderr, "{}: {}; they are in {}\n", printable(store_.results().string()), what,
               printable(kept.aside.string()));
  }

  std::string key_of(std::size_t point) const {
    const std::size_t group = point / per_group_;
    return keys_.of(group, point % per_group_, facts_of(group));
  }

  /// Of other sweeps, by way of the cache.
  void take_from_cache() {
    if (!cache_) return;
    for (const std::size_t g : groups_) {
      if (!facts_of(g).impossible.empty()) continue;
      for (const std::size_t place : missing(g)) {
        const std::size_t point = g * per_group_ + place;
        std::optional<Json> record = cache_->find(key_of(point));
        if (!record) continue;
        (*record)["point"] = point;
        (*record)["case"] = g / experiment_.strategies.size();
        keep(point, json_text(*record));
        ++cached_;
      }
    }
  }

  bool answer_groups(TaskPool& pool) {
    std::vector<Json> tasks;
    std::vector<std::size_t> impossible;
    std::size_t points = 0;
    for (const std::size_t g : groups_) {
      const std::vector<std::size_t> places = missing(g);
      if (places.empty()) continue;
      points += places.size();
      if (!facts_of(g).impossible.empty()) {
        impossible.push_back(g);
        continue;
      }
      std::vector<std::string> keys;
      for (const std::size_t place : places) keys.push_back(key_of(g * per_group_ + place));
      tasks.push_back({{"group", g}, {"wanted", places}, {"keys", keys}, {"budgets_bytes", budgets_json(facts_of(g))}});
    }
    if (largest_first_) sort_by_work(tasks);
    Progress progress(points, "points", options_.quiet);
    for (const std::size_t g : impossible) keep_unanswered(g, facts_of(g).impossible, progress);
    SweepEstimate estimate(workers_);
    for (const Json& task : tasks) estimate.expect(strategy_of(task), work_of(task));
    const auto work_of_point = [&](const Json& task) {
      return work_of(task) / static_cast<double>(task["wanted"].size());
    };
    return pool.run(
        tasks, {.record =
                    [&](std::size_t t, std::string_view text) {
                      const RecordHead record = head_of_record(text);
                      if (done_.contains(record.point)) return;  // of a rank that died behind it
                      keep(record.point, text);
                      if (cache_) cache_->keep(std::string(record.key), text);
                      estimate.done(strategy_of(tasks[t]), work_of_point(tasks[t]), record.taken);
                      progress.add(record.feasible);
                    },
                .failed =
                    [&](std::size_t t, const TaskFailure& failure) {
                      const Question q = question_of(experiment_, tasks[t]["group"]);
                      progress.clear_line();
                      if (failure.beyond_limits) {
                        return keep_unanswered(tasks[t]["group"], failure.message, progress);
                      }
                      progress.add_failed();
                      fail(fmt::format("{} for {} on {}", q.strategy.text, q.trace, q.platform), failure,
                           {{"trace", q.trace},
                            {"platform", q.platform},
                            {"micro_batches", q.micro_batches},
                            {"optimizer", written(q.optimizer)},
                            {"strategy", q.strategy.text}});
                    },
                .tick =
                    [&] {
                      show(progress, estimate);
                      tell_how_far();
                    },
                .started =
                    [&](std::size_t t) {
                      const Question q = question_of(experiment_, tasks[t]["group"]);
                      estimate.started(t, {q.strategy.text, work_of(tasks[t]), q.strategy.text + " for " + q.trace});
                    },
                .ended = [&](std::size_t t) { estimate.ended(t); }});
  }

  std::string strategy_of(const Json& task) const { return question_of(experiment_, task["group"]).strategy.text; }

  /// Of a group, in budgets times micro-batches times ops.
  double work_of(const Json& task) const {
    const Question q = question_of(experiment_, task["group"]);
    return static_cast<double>(task["wanted"].size() * q.micro_batches * inputs_.size_of(q.trace));
  }

  /// What takes longest comes first, so that no rank is left with it at the end.
  void sort_by_work(std::vector<Json>& tasks) const {
    std::ranges::stable_sort(tasks, std::ranges::greater(), [&](const Json& task) { return work_of(task); });
  }

  void keep(std::size_t point, std::string_view record) {
    store_.append(point, record);
    done_.insert(point);
  }

  /// What is not to be had within the experiment's limits, or at all, is a result too.
  void keep_unanswered(std::size_t group, const std::string& reason, Progress& progress) {
    const std::vector<std::optional<Bytes>>& budgets = facts_of(group).budgets;
    for (const std::size_t place : missing(group)) {
      const Json record =
          unanswered_point(experiment_, group, place, budgets.at(place), reason, key_of(group * per_group_ + place));
      keep(record["point"], json_text(record));
      progress.add(false);
    }
  }

  /// Keeps `finished` true while a long sweep runs.
  void tell_how_far() {
    if (std::chrono::steady_clock::now() >= tell_again_) write_manifest("running");
  }

  std::size_t points_done() const {
    std::size_t count = store_.found();  // until they are looked at
    for (const std::size_t g : groups_) count += per_group_ - missing(g).size();
    return count;
  }

  void write_manifest(std::string_view status) {
    using namespace std::chrono_literals;
    constexpr int share = 50;  // of thousands of cases it takes seconds
    const auto begun = std::chrono::steady_clock::now();
    store_.write_manifest({{"format", "plimsoll.sweep.v1"},
                           {"version", program_version()},
                           {"command_line", options_.command_line},
                           {"status", status},
                           {"points", groups_.size() * per_group_},
                           {"finished", points_done()},
                           {"shard", fmt::format("{}/{}", options_.shard.k, options_.shard.n)},
                           {"experiment_file", options_.experiment.string()},
                           {"experiment_text", text_},
                           {"identity", identity_},
                           {"failures", failures_},
                           {"cases", facts_.cases_json()},
                           {"smallest", facts_.smallest_json()}});
    const auto now = std::chrono::steady_clock::now();
    tell_again_ = now + std::max<std::chrono::steady_clock::duration>(2s, share * (now - begun));
  }

  int finish(std::string_view status, int exit_code) {
    store_.sort();
    write_manifest(status);
    const std::size_t all = groups_.size() * per_group_;
    if (options_.quiet && exit_code == 0) return exit_code;
    const std::string shared = cached_ > 0 ? fmt::format(", {} of them from the cache", cached_) : "";
    fmt::print(stderr, "{}: {}, {} of {} points in {}{}{}\n", printable(experiment_.name), status, points_done(), all,
               printable(store_.results().string()), shared,
               points_done() < all ? "; --resume runs the missing points" : "");
    return exit_code;
  }

  const SweepOptions& options_;
  const std::string& text_;
  const Experiment& experiment_;
  const SweepInputs& inputs_;
  StoreDisk own_disk_;
  Json identity_;
  SweepStore store_;
  std::vector<std::size_t> groups_;
  std::size_t per_group_;
  SweepFacts facts_;
  PointKeys keys_;
  std::optional<PointCache> cache_;
  std::size_t cached_ = 0;  ///< points that were there
  std::set<std::size_t> done_;
  std::set<std::string> told_;  ///< several cases may have the same trouble
  Json failures_ = Json::array();
  std::chrono::steady_clock::time_point tell_again_;
  int exit_code_ = 0;
  std::size_t workers_ = 1;
  bool largest_first_ = false;
};

/// What a rank above 0 does: it reads the same, and answers what rank 0 asks.
int answer_as_rank(const SweepOptions& options) {
  const Interruption interruption;
  try {
    const ExperimentFile file = read_experiment(options.experiment, options.changes);
    const SweepInputs inputs(file);
    WorkerPool own(1, interruption, worker_of(file.experiment, inputs), limits_of(file.experiment));
    return serve_rank(interruption, own, json_text(identity_of(file.experiment, inputs)));
  } catch (const InputError& error) {
    return refuse_as_rank(interruption, error.what());
  }
}

}  // namespace

int sweep(const SweepOptions& options) {
  const std::optional<RankPlace> place = place_among_ranks();
  if (place && place->rank > 0) return answer_as_rank(options);
  const ExperimentFile file = read_experiment(options.experiment, options.changes);
  const SweepInputs inputs(file);
  return Sweep(options, file, inputs).run(place);
}

int list_sweep(const SweepOptions& options, std::ostream& out) {
  if (const std::optional<RankPlace> place = place_among_ranks(); place && place->rank > 0) return exit_fine;
  const ExperimentFile file = read_experiment(options.experiment, options.changes);
  SweepInputs inputs(file);
  inputs.read_networks();
  return list_points(file.experiment, inputs, options.shard, out);
}

}  // namespace plimsoll
