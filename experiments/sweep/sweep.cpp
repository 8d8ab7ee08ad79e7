#include "experiments/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "experiments/study/build_name.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/point_numbers.h"
#include "experiments/sweep/sweep_facts.h"
#include "experiments/sweep/sweep_inputs.h"
#include "experiments/sweep/sweep_listing.h"
#include "experiments/sweep/sweep_store.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/printable.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int interrupted_exit = 130;

Json identity_of(const Experiment& e, const SweepInputs& inputs) {
  return {{"version", program_version()}, {"experiment", to_json(e)}, {"inputs", inputs.digests()}};
}

/// What a worker does: facts, or the wanted points of a group.
WorkerPool::Work worker_of(const Experiment& e, const SweepInputs& inputs) {
  return [&e, &inputs](const Json& task, const std::function<void(const Json&)>& reply) {
    if (!task.contains("group")) return reply(SweepFacts::plan(e, inputs, task));
    std::vector<std::optional<Bytes>> all;
    for (const Json& b : task.at("budgets_bytes")) {
      all.push_back(b.is_null() ? std::nullopt : std::optional(Bytes{b.get<std::int64_t>()}));
    }
    const auto wanted = task.at("wanted").get<std::vector<std::size_t>>();
    answer_points(e, inputs, task.at("group"), all, wanted, reply);
  };
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
        facts_(experiment_, groups_) {
    for (const Json& manifest : store_.manifests_that_hold()) facts_.reuse(manifest);
    if (const fs::path aside = options.resume ? fs::path() : store_.start_afresh(); !aside.empty()) {
      fmt::print(stderr, "{}: starting afresh, the results so far are in {}; --resume would keep them\n",
                 printable(store_.results().string()), printable(aside.string()));
    }
  }

  int run() {
    write_manifest("running");
    const std::size_t jobs = std::max<std::size_t>(1, std::min(options_.jobs, groups_.size()));
    const Interruption interruption;
    WorkerPool pool(jobs, interruption, worker_of(experiment_, inputs_),
                    {.timeout = experiment_.timeout, .memory = experiment_.memory_limit});
    if (!find_facts(pool)) return finish("interrupted", interrupted_exit);
    if (exit_code_ != 0) return finish("failed", exit_code_);  // wrong input is refused before anything runs
    keep_what_is_there();
    write_manifest("running");
    if (!answer_groups(pool)) return finish("interrupted", interrupted_exit);
    return finish(exit_code_ == 0 ? "complete" : "failed", exit_code_);
  }

 private:
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

  bool find_facts(WorkerPool& pool) {
    const std::vector<Json> missing = facts_.missing_cases();
    if (!plan_facts(pool, missing, "cases looked at")) return false;
    if (exit_code_ == 0 && !plan_facts(pool, facts_.missing_smallest(), "least budgets found")) return false;
    if (exit_code_ != 0) return true;
    facts_.make_budgets([&](std::size_t index, const InputError& error) {
      fail(facts_.name_of({{"case", index}}), {2, error.what()});
    });
    return true;
  }

  bool plan_facts(WorkerPool& pool, const std::vector<Json>& tasks, std::string_view what) {
    Progress progress(tasks.size(), what);
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
                                  progress.show();
                                  tell_how_far();
                                }});
  }

  /// Of an earlier sweep into this folder.
  void keep_what_is_there() {
    if (store_.found() == 0) return;
    const Kept kept = store_.keep(PointNumbers(identity_["experiment"], facts_.cases()));
    done_ = kept.points;
    if (kept.aside.empty()) return;
    std::string what;
    if (kept.of_other_builds > 0) {
      what = fmt::format("{} results are of other builds of the program than {} and are run again",
                         kept.of_other_builds, build_name());
    }
    if (kept.of_other_points > 0) {
      what += fmt::format("{}{} are of no point of this experiment, or were stopped by other limits",
                          what.empty() ? "" : "; ", kept.of_other_points);
    }
    fmt::print(stderr, "{}: {}; they are in {}\n", printable(store_.results().string()), what,
               printable(kept.aside.string()));
  }

  bool answer_groups(WorkerPool& pool) {
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
      tasks.push_back({{"group", g}, {"wanted", places}, {"budgets_bytes", to_json(facts_of(g))["budgets_bytes"]}});
    }
    Progress progress(points, "points");
    for (const std::size_t g : impossible) keep_unanswered(g, facts_of(g).impossible, progress);
    return pool.run(tasks, {.record =
                                [&](std::size_t, std::string_view text) {
                                  const Json record = Json::parse(text);
                                  keep(record.at("point"), text);
                                  progress.add(record.at("feasible"));
                                },
                            .failed =
                                [&](std::size_t t, const TaskFailure& failure) {
                                  const Question q = question_of(experiment_, tasks[t]["group"]);
                                  progress.clear_line();
                                  if (failure.beyond_limits) {
                                    return keep_unanswered(tasks[t]["group"], failure.message, progress);
                                  }
                                  fail(fmt::format("{} for {} on {}", q.strategy.text, q.trace, q.platform), failure,
                                       {{"trace", q.trace},
                                        {"platform", q.platform},
                                        {"micro_batches", q.micro_batches},
                                        {"optimizer", written(q.optimizer)},
                                        {"strategy", q.strategy.text}});
                                },
                            .tick =
                                [&] {
                                  progress.show();
                                  tell_how_far();
                                }});
  }

  void keep(std::size_t point, std::string_view record) {
    store_.append(point, record);
    done_.insert(point);
  }

  /// What is not to be had within the experiment's limits, or at all, is a result too.
  void keep_unanswered(std::size_t group, const std::string& reason, Progress& progress) {
    const std::vector<std::optional<Bytes>>& budgets = facts_of(group).budgets;
    for (const std::size_t place : missing(group)) {
      const Json record = unanswered_point(experiment_, group, place, budgets.at(place), reason);
      keep(record["point"], json_text(record));
      progress.add(false);
    }
  }

  /// Keeps `finished` true while a long sweep runs.
  void tell_how_far() {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (now - told_how_far_ < 2s) return;
    write_manifest("running");
  }

  std::size_t points_done() const {
    std::size_t count = store_.found();  // until they are looked at
    for (const std::size_t g : groups_) count += per_group_ - missing(g).size();
    return count;
  }

  void write_manifest(std::string_view status) {
    told_how_far_ = std::chrono::steady_clock::now();
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
  }

  int finish(std::string_view status, int exit_code) {
    store_.sort();
    write_manifest(status);
    const std::size_t all = groups_.size() * per_group_;
    fmt::print(stderr, "{}: {}, {} of {} points in {}{}\n", printable(experiment_.name), status, points_done(), all,
               printable(store_.results().string()), points_done() < all ? "; --resume runs what is missing" : "");
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
  std::set<std::size_t> done_;
  std::set<std::string> told_;  ///< several cases may have the same trouble
  Json failures_ = Json::array();
  std::chrono::steady_clock::time_point told_how_far_;
  int exit_code_ = 0;
};

}  // namespace

int sweep(const SweepOptions& options) {
  const ExperimentFile file = read_experiment(options.experiment);
  const SweepInputs inputs(file);
  return Sweep(options, file, inputs).run();
}

void list_sweep(const fs::path& experiment, Shard shard, std::ostream& out) {
  const ExperimentFile file = read_experiment(experiment);
  const SweepInputs inputs(file);
  list_points(file.experiment, shard, out);
}

}  // namespace plimsoll
