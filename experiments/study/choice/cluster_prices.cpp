// What `cluster` would choose if one thing were otherwise: more memory, faster links, a device more or fewer, or
// without one of its ways.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "experiments/study/choice/changed_platform.h"
#include "experiments/study/choice/cluster_question.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr Bytes more_memory{1'000'000'000};

class ChangedSearches {
 public:
  ChangedSearches(const Question& question, const Trace& trace, const Platform& platform, ClusterProblems& problems,
                  const ClusterAnswer& found)
      : question_(question),
        trace_(trace),
        platform_(platform),
        problems_(problems),
        extent_(problems.extent()),
        options_(question.strategy.passes.front().options.as<ClusterOptions>()),
        found_(found) {
    for (const ClusterRow& row : found.rows) {
      if (row.outcome) known_.emplace(row.point, *row.outcome);
    }
  }

  std::vector<ChangedChoice> run() {
    if (const std::optional<Bytes> budget = problems_.budget()) {
      Question more = question_;
      more.memory = *budget + more_memory;
      add("1 GB more a device", more, platform_);
    }
    for (const std::string& kind : link_kinds(platform_)) {
      add("twice " + kind, question_, with_faster_links(platform_, kind));
    }
    add("a device more", question_, with_another_device(platform_));
    if (extent_.devices > 1) {
      problems_.leave_idle(extent_.devices - 1);
      add("a device fewer", options_);
      problems_.leave_idle(extent_.devices);
    }
    add_without(best().way().splits_backward, "without split backwards",
                [](ClusterOptions& options) { options.schedule = whole_backwards(options.schedule); });
    add_without(best().tensor > 1, "without tensor", [](ClusterOptions& options) { options.tensor = "1"; });
    add_without(best().context > 1, "without context", [](ClusterOptions& options) { options.context = "1"; });
    add_without(best().experts > 1, "without experts apart", [](ClusterOptions& options) { options.experts = "1"; });
    add_without(best().stages > 1, "without pipelines", [](ClusterOptions& options) { options.stages = "1"; });
    add_without(best().saving().name != "none", "without savers",
                [](ClusterOptions& options) { options.saver = "none"; });
    add_without(best().compression > 0, "without compression",
                [](ClusterOptions& options) { options.compression = "none"; });
    add_without(best().offload > 0, "without offloading", [](ClusterOptions& options) { options.offload = "none"; });
    add_without(best().updates > 0, "with updates on devices",
                [](ClusterOptions& options) { options.updates = "device"; });
    return std::move(made_);
  }

 private:
  const ClusterPoint& best() const { return found_.rows[*found_.best].point; }

  /// Of those that are asked for, or of the usual ones.
  static std::string whole_backwards(const std::string& asked) {
    const std::vector<std::string_view> words = read_words(asked);
    std::string left;
    for (const ClusterSchedule& way : cluster_schedules()) {
      const bool is_asked = words.empty() ? way.is_usual : std::ranges::find(words, way.name) != words.end();
      if (is_asked && !way.splits_backward) left += (left.empty() ? "" : "+") + std::string(way.name);
    }
    return left.empty() ? "none" : left;
  }

  /// On another platform, or with another budget.
  void add(const std::string& change, const Question& question, const Platform& platform) {
    ClusterProblems problems(question, trace_, platform);
    problems.count_as(extent_);
    ClusterQuestion asked = problems.question();
    asked.first = best();
    add(change, asked, options_);
  }

  /// On the same one: what a point takes is known where it has been simulated.
  void add(const std::string& change, const ClusterOptions& options) {
    ClusterQuestion asked = problems_.question();
    asked.first = best();
    asked.outcome = [this, simulated = asked.outcome](const ClusterPoint& point, const ComposedPoint& as) {
      const auto known = known_.find(point);
      return known != known_.end() ? known->second : known_.emplace(point, simulated(point, as)).first->second;
    };
    add(change, asked, options);
  }

  template <class Restrict>
  void add_without(bool is_used, const std::string& change, Restrict restrict) {
    if (!is_used) return;
    ClusterOptions options = options_;
    restrict(options);
    add(change, options);
  }

  void add(const std::string& change, const ClusterQuestion& asked, const ClusterOptions& options) {
    ChangedChoice made{.change = change, .strategy = {}, .samples = 1, .makespan = {}, .is_proven = false};
    try {
      const ClusterAnswer answer = cluster_search(asked, options);
      if (answer.best) {
        const ClusterRow& row = answer.rows[*answer.best];
        made.strategy = row.as().text;
        made.samples = row.point.samples;
        made.makespan = *row.outcome->makespan;
      }
      made.is_proven = answer.is_proven;
    } catch (const InputError&) {  // the restriction leaves no point: that is the answer
      made.is_proven = true;
    }
    made_.push_back(std::move(made));
  }

  const Question& question_;
  const Trace& trace_;
  const Platform& platform_;
  ClusterProblems& problems_;
  const ClusterExtent extent_;
  const ClusterOptions& options_;
  const ClusterAnswer& found_;
  std::map<ClusterPoint, ClusterOutcome> known_;
  std::vector<ChangedChoice> made_;
};

}  // namespace

std::vector<ChangedChoice> cluster_prices(const Question& question, const Trace& trace, const Platform& platform,
                                          ClusterProblems& problems, const ClusterAnswer& found) {
  return ChangedSearches(question, trace, platform, problems, found).run();
}

}  // namespace plimsoll
