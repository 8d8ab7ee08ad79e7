#include "experiments/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "experiments/progress.h"
#include "experiments/sweep_inputs.h"
#include "experiments/sweep_store.h"
#include "experiments/worker_pool.h"
#include "sim/io/input_error.h"
#include "sim/io/printable.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int interrupted_exit = 130;

Json identity_of(const Experiment& e, const SweepInputs& inputs) {
  return {{"version", "plimsoll " PLIMSOLL_VERSION}, {"experiment", to_json(e)}, {"inputs", inputs.digests()}};
}

Json budgets_json(const CaseFacts& facts) {
  return to_json(facts)["budgets_bytes"];
}

/// What a worker does: a case's facts, or the wanted points of a group.
WorkerPool::Work worker_of(const Experiment& e, const SweepInputs& inputs) {
  return [&e, &inputs](const Json& task, const std::function<void(const Json&)>& reply) {
    if (!task.contains("group")) {
      reply(to_json(facts_of(e, inputs, task.at("case"))));
      return;
    }
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
        cases_(store_.before().cases) {
    if (const fs::path aside = options.resume ? fs::path() : store_.start_afresh(); !aside.empty()) {
      fmt::print(stderr, "{}: starting afresh, the results so far are in {}; --resume would keep them\n",
                 printable(store_.results().string()), printable(aside.string()));
    }
    for (const auto& [point, record] : store_.before().records) done_.insert(point);
  }

  int run() {
    const std::vector<Json> missing_facts = cases_to_look_at();
    write_manifest("running");
    const std::size_t jobs = std::max<std::size_t>(1, std::min(options_.jobs, groups_.size()));
    const Interruption interruption;
    WorkerPool pool(jobs, interruption, worker_of(experiment_, inputs_),
                    {.timeout = experiment_.timeout, .memory = experiment_.memory_limit});
    if (!find_facts(pool, missing_facts)) return finish("interrupted", interrupted_exit);
    if (exit_code_ != 0) return finish("failed", exit_code_);  // wrong input is refused before anything runs
    if (!answer_groups(pool)) return finish("interrupted", interrupted_exit);
    return finish(exit_code_ == 0 ? "complete" : "failed", exit_code_);
  }

 private:
  std::size_t case_of(std::size_t group) const { return group / experiment_.strategies.size(); }

  /// Budgets of the group's points that are not there yet, as places in the case's list.
  std::vector<std::size_t> missing(std::size_t group) const {
    std::vector<std::size_t> places;
    for (std::size_t b = 0; b < per_group_; ++b) {
      if (!done_.contains(group * per_group_ + b)) places.push_back(b);
    }
    return places;
  }

  std::vector<Json> cases_to_look_at() const {
    std::set<std::size_t> wanted;
    for (const std::size_t g : groups_) {
      if (!cases_.contains(case_of(g))) wanted.insert(case_of(g));
    }
    std::vector<Json> tasks;
    tasks.reserve(wanted.size());
    for (const std::size_t c : wanted) tasks.push_back({{"case", c}});
    return tasks;
  }

  void fail(std::string what, const TaskFailure& failure) {
    exit_code_ = std::max(exit_code_, failure.exit_code);
    const std::string line = fmt::format("{}: {}: {}\n", options_.experiment.string(), what, failure.message);
    if (told_.insert(line).second) fmt::print(stderr, "{}", printable(line));
    failures_.push_back({{"what", std::move(what)}, {"message", failure.message}});
  }

  bool find_facts(WorkerPool& pool, std::span<const Json> tasks) {
    const bool all = pool.run(
        tasks, {.record = [&](std::size_t t,
                              std::string_view record) { cases_[tasks[t]["case"]] = case_facts(Json::parse(record)); },
                .failed =
                    [&](std::size_t t, const TaskFailure& failure) {
                      const std::size_t c = tasks[t]["case"];
                      if (failure.beyond_limits) {
                        cases_[c] = impossible_case(experiment_, c, failure.message);
                        return;
                      }
                      const Question q = question_of(experiment_, c * experiment_.strategies.size());
                      fail(fmt::format("trace {} on {}", q.trace, q.platform), failure);
                    },
                .tick = [] {}});
    write_manifest("running");
    return all;
  }

  bool answer_groups(WorkerPool& pool) {
    std::vector<Json> tasks;
    std::vector<std::size_t> impossible;
    std::size_t points = 0;
    for (const std::size_t g : groups_) {
      const std::vector<std::size_t> places = missing(g);
      if (places.empty() || !cases_.contains(case_of(g))) continue;
      points += places.size();
      if (!cases_.at(case_of(g)).impossible.empty()) {
        impossible.push_back(g);
        continue;
      }
      tasks.push_back({{"group", g}, {"wanted", places}, {"budgets_bytes", budgets_json(cases_.at(case_of(g)))}});
    }
    Progress progress(points);
    for (const std::size_t g : impossible) keep_unanswered(g, cases_.at(case_of(g)).impossible, progress);
    return pool.run(tasks, {.record =
                                [&](std::size_t, std::string_view text) {
                                  keep(Json::parse(text).at("point"), text);
                                  progress.add(Json::parse(text).at("feasible"));
                                },
                            .failed =
                                [&](std::size_t t, const TaskFailure& failure) {
                                  const Question q = question_of(experiment_, tasks[t]["group"]);
                                  progress.clear_line();
                                  if (failure.beyond_limits) {
                                    return keep_unanswered(tasks[t]["group"], failure.message, progress);
                                  }
                                  fail(fmt::format("{} for {} on {}", q.strategy, q.trace, q.platform), failure);
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
    const std::vector<std::optional<Bytes>>& budgets = cases_.at(case_of(group)).budgets;
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
    std::size_t count = 0;
    for (const std::size_t g : groups_) count += per_group_ - missing(g).size();
    return count;
  }

  void write_manifest(std::string_view status) {
    told_how_far_ = std::chrono::steady_clock::now();
    Json cases_json = Json::array();
    for (const auto& [index, facts] : cases_) {
      Json one{{"case", index}};
      one.update(to_json(facts));
      cases_json.push_back(std::move(one));
    }
    store_.write_manifest({{"format", "plimsoll.sweep.v1"},
                           {"version", "plimsoll " PLIMSOLL_VERSION},
                           {"command_line", options_.command_line},
                           {"status", status},
                           {"points", groups_.size() * per_group_},
                           {"finished", points_done()},
                           {"shard", fmt::format("{}/{}", options_.shard.k, options_.shard.n)},
                           {"experiment_file", options_.experiment.string()},
                           {"experiment_text", text_},
                           {"identity", identity_},
                           {"failures", failures_},
                           {"cases", std::move(cases_json)}});
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
  std::map<std::size_t, CaseFacts> cases_;
  std::set<std::size_t> done_;
  std::set<std::string> told_;  ///< several cases may have the same trouble
  Json failures_ = Json::array();
  std::chrono::steady_clock::time_point told_how_far_;
  int exit_code_ = 0;
};

}  // namespace

int sweep(const SweepOptions& options) {
  const ExperimentFile file = read_experiment(options.experiment);
  const SweepInputs inputs(file.experiment);
  return Sweep(options, file, inputs).run();
}

}  // namespace plimsoll
