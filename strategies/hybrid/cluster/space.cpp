#include "strategies/hybrid/cluster/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <compare>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "strategies/hybrid/cluster/framework.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t most_usual_samples = 16, few_devices = 16, most_chunks = 64;
constexpr std::array<std::uint32_t, 6> usual_chunks{2, 3, 4, 6, 8, 12};

/// Of which each point has its own: values to try, and the name of the option that gave them.
struct Choices {
  std::string_view option;
  std::string given;
  std::vector<std::uint32_t> values;  ///< empty: auto

  bool allows(std::uint32_t value) const { return values.empty() || std::ranges::binary_search(values, value); }
};

Choices choices_of(std::string_view option, const std::string& given) {
  return {option, given, read_choices(given).value_or(std::vector<std::uint32_t>{})};
}

/// Indices of the named entries of a table, or of the usual ones.
template <class Entry>
std::vector<std::uint8_t> named(std::span<const Entry> table, const std::string& given) {
  const std::vector<std::string_view> words = read_words(given);
  std::vector<std::uint8_t> found;
  for (std::size_t k = 0; k < table.size(); ++k) {
    const bool is_asked = words.empty() ? table[k].is_usual : std::ranges::find(words, table[k].name) != words.end();
    if (is_asked) found.push_back(static_cast<std::uint8_t>(k));
  }
  return found;
}

/// Whether the turns of a schedule can be taken by so many micro-batches; each strategy refuses the others.
bool has_turns(const ClusterSchedule& way, std::uint32_t stages, std::uint32_t micro_batches) {
  if (way.strategy == &dualpipe_v_strategy) return micro_batches >= 2 * stages;
  return true;
}

class Enumeration {
 public:
  Enumeration(const ClusterExtent& extent, const ClusterOptions& options)
      : extent_(extent),
        tensor_(choices_of("t", options.tensor)),
        context_(choices_of("context", options.context)),
        stages_(choices_of("p", options.stages)),
        replicas_(choices_of("d", options.replicas)),
        experts_(choices_of("expert", options.experts)),
        copies_(choices_of("copies", options.copies)),
        zero_(choices_of("z", options.zero)),
        chunks_(choices_of("chunks", options.chunks)),
        samples_(choices_of("micro_batch", options.samples)),
        schedules_(named(cluster_schedules(), options.schedule)),
        savers_(named(cluster_savers(), options.saver)),
        options_(options),
        framework_(cluster_framework(options.framework)) {}

  ClusterSpace run() && {
    for (std::uint32_t tensor = 1; tensor <= (extent_.has_operators ? extent_.devices : 1); ++tensor) {
      const bool is_usual = extent_.in_node % tensor == 0;
      if (tensor_.values.empty() ? !is_usual : !tensor_.allows(tensor)) continue;
      note(1);
      for (std::uint32_t context = 1; context <= (extent_.has_operators ? extent_.devices / tensor : 1); ++context) {
        const bool is_divisor = extent_.usual_devices / tensor % context == 0;
        if (context_.values.empty() ? !is_divisor : !context_.allows(context)) continue;
        note(2);
        add_rows({.tensor = tensor, .context = context});
      }
    }
    std::ranges::sort(space_.points);
    if (space_.points.empty()) space_.empty_because = why_empty();
    refuse_what_is_asked_in_vain();
    return std::move(space_);
  }

 private:
  void note(std::size_t reached) { reached_ = std::max(reached_, reached); }

  void add_rows(ClusterPoint point) {
    const std::size_t in_a_row = std::min<std::size_t>(extent_.devices / point.width(), extent_.model_stages);
    for (point.stages = 1; point.stages <= static_cast<std::uint32_t>(in_a_row); ++point.stages) {
      const bool is_usual =
          extent_.usual_devices <= few_devices || extent_.usual_devices / point.width() % point.stages == 0;
      if (stages_.values.empty() ? !is_usual : !stages_.allows(point.stages)) continue;
      note(3);
      add_sizes(point);
    }
  }

  void add_sizes(ClusterPoint point) {
    for (std::uint32_t samples = 1; samples <= extent_.batch; ++samples) {
      if (!extent_.has_sizes && samples != extent_.given_samples) continue;
      if (!samples_.allows(samples) || extent_.batch % samples != 0) continue;
      if (samples_.values.empty() && extent_.has_sizes && samples > most_usual_samples) break;
      note(4);
      point.samples = samples;
      add_groups(point);
    }
  }

  void add_groups(ClusterPoint point) {
    const std::uint32_t most = extent_.devices / (point.width() * point.stages);
    for (point.experts = 1; point.experts <= (extent_.has_operators ? most : 1); ++point.experts) {
      if (!allows_divisor(experts_, point.experts)) continue;
      note(5);
      for (point.copies = 1; point.copies <= most / point.experts; ++point.copies) {
        if (!allows_divisor(copies_, point.copies)) continue;
        note(6);
        for (const std::uint32_t replicas : replicas_for(point)) {
          note(7);
          point.replicas = replicas;
          add_sharing(point);
        }
      }
    }
  }

  bool allows_divisor(const Choices& choices, std::uint32_t value) const {
    return choices.values.empty() ? extent_.usual_devices % value == 0 : choices.allows(value);
  }

  /// The largest that divides the micro-batches, in whole groups; those asked for, else.
  std::vector<std::uint32_t> replicas_for(const ClusterPoint& point) const {
    const std::uint32_t micro_batches = extent_.batch / point.samples;
    std::vector<std::uint32_t> found;
    for (std::uint32_t d = std::min(extent_.devices / (point.width() * point.stages), micro_batches); d > 0; --d) {
      if (micro_batches % d != 0 || d % (point.experts * point.copies) != 0 || !replicas_.allows(d)) continue;
      found.push_back(d);
      if (replicas_.values.empty()) break;
    }
    return found;
  }

  void add_sharing(ClusterPoint point) {
    const bool shares = point.sharers() > 1 && extent_.has_updates;
    if (point.copies > 1 && !shares) return;
    for (point.zero = point.copies > 1 ? 2 : 0; point.zero <= (shares ? 3U : 0U); ++point.zero) {
      if (!zero_.allows(point.zero)) continue;
      note(8);
      add_schedules(point);
    }
  }

  void add_schedules(ClusterPoint point) {
    const std::uint32_t m = extent_.micro_batches(point);
    for (const std::uint8_t schedule : schedules_) {
      point.schedule = schedule;
      const ClusterSchedule& way = point.way();
      if ((way.strategy == nullptr) != (point.stages == 1) || !has_turns(way, point.stages, m)) continue;
      for (point.chunks = 1; point.chunks <= most_chunks; ++point.chunks) {
        const bool is_usual = std::ranges::find(usual_chunks, point.chunks) != usual_chunks.end();
        const bool fits = way.shape == PipelineShape::line ? point.chunks == 1
                          : way.shape == PipelineShape::v  ? point.chunks == 2
                          : chunks_.values.empty()         ? is_usual
                                                           : chunks_.allows(point.chunks);
        if (!fits || std::size_t{point.stages} * point.chunks > extent_.model_stages) continue;
        note(9);
        for (point.saver = 0; point.saver < cluster_savers().size(); ++point.saver) {
          if (std::ranges::find(savers_, point.saver) != savers_.end()) add(point);
        }
      }
    }
  }

  void add(const ClusterPoint& point) {
    const std::optional<std::string> why = framework_ ? framework_->why_not(extent_, point) : std::nullopt;
    if (!why) {
      space_.points.push_back(point);
    } else {
      refused_.emplace(Asked{point.schedule, point.saver, point.zero}, *why);
    }
  }

  /// What words ask for.
  struct Asked {
    std::uint8_t schedule, saver;
    std::uint32_t zero;
    friend auto operator<=>(const Asked&, const Asked&) = default;
  };

  /// What words ask for though no point has it; empty: nothing.
  std::string asked_in_vain(const Asked& asked) const {
    const auto is_in_vain = [&](const std::string& given, auto of_point, auto value) {
      return given != "auto" && std::ranges::find(space_.points, value, of_point) == space_.points.end();
    };
    if (is_in_vain(options_.schedule, &ClusterPoint::schedule, asked.schedule)) {
      return fmt::format("schedule={}", cluster_schedules()[asked.schedule].name);
    }
    if (is_in_vain(options_.saver, &ClusterPoint::saver, asked.saver)) {
      return fmt::format("saver={}", cluster_savers()[asked.saver].name);
    }
    return is_in_vain(options_.zero, &ClusterPoint::zero, asked.zero) ? fmt::format("z={}", asked.zero) : "";
  }

  /// Leaves none where the framework has refused what words ask for, or everything.
  void refuse_what_is_asked_in_vain() {
    for (const auto& [asked, why] : refused_) {
      const std::string in_vain = asked_in_vain(asked);
      if (in_vain.empty() && !space_.points.empty()) continue;
      const std::string what = in_vain.empty() ? "any of these points" : in_vain;
      space_ = {{}, fmt::format("for={}: {} cannot run {}: {}", framework_->name, framework_->title, what, why)};
      return;
    }
  }

  std::string why_empty() const {
    const auto says = [](const Choices& choices, std::string_view why) {
      return fmt::format("{}={} leaves no point: {}", choices.option, choices.given, why);
    };
    switch (reached_) {
      case 0:
        if (!extent_.has_operators) return says(tensor_, "a chain has no operators to share out");
        return says(tensor_, fmt::format("there are {} devices", extent_.devices));
      case 1:
        if (!extent_.has_operators) return says(context_, "a chain has no operators whose positions could be shared");
        return says(context_, fmt::format("there are {} devices", extent_.devices));
      case 2:
        return says(stages_, fmt::format("there are {} devices, and the model has {} stages", extent_.devices,
                                         extent_.model_stages));
      case 3:
        if (!extent_.has_sizes) {
          return says(samples_, fmt::format("micro-batches of this trace have {} samples", extent_.given_samples));
        }
        return says(samples_, fmt::format("no such micro-batch divides a batch of {}", extent_.batch));
      case 4:
        if (!extent_.has_operators) return says(experts_, "a chain has no experts to share out");
        return says(experts_, fmt::format("there are no {} devices for them in a stage", experts_.given));
      case 5:
        return says(copies_, "there are no devices for so many groups of replicas in a stage");
      case 6:
        return says(replicas_, fmt::format("so many replicas do not fit {} devices and {} samples", extent_.devices,
                                           extent_.batch));
      case 7:
        if (!extent_.has_updates) {
          return says(copies_.values.empty() || copies_.allows(1) ? zero_ : copies_,
                      "without an optimizer there are no states to share out");
        }
        if (!copies_.allows(1)) return says(copies_, "groups are of several replicas that share out with z=2 or z=3");
        return says(zero_, "only several replicas share anything out");
      default:
        return "schedule leaves no point: no such pipeline has so many stages and micro-batches";
    }
  }

  const ClusterExtent& extent_;
  Choices tensor_, context_, stages_, replicas_, experts_, copies_, zero_, chunks_, samples_;
  std::vector<std::uint8_t> schedules_, savers_;
  const ClusterOptions& options_;
  const ClusterFramework* framework_;  // null: any
  std::map<Asked, std::string> refused_;
  ClusterSpace space_;
  std::size_t reached_ = 0;  // how many choices some point has passed
};

/// Adds a pass to both.
void add(ComposedPoint& made, const StrategyInfo& strategy, std::map<std::string, std::string, std::less<>> given) {
  std::string options;
  for (const auto& [name, value] : given) options += fmt::format("{}{}={}", options.empty() ? "" : ",", name, value);
  if (!options.empty()) options = "(" + options + ")";
  made.text += fmt::format("{}{}{}", made.text.empty() ? "" : "|", strategy.name, options);
  made.passes.push_back(pass_of(strategy, std::move(given)));
}

}  // namespace

std::span<const ClusterSchedule> cluster_schedules() {
  using enum PipelineShape;
  static const std::array all{
      ClusterSchedule{.name = "none", .strategy = nullptr},
      ClusterSchedule{.name = "1f1b", .strategy = &one_forward_one_backward_strategy},
      ClusterSchedule{.name = "gpipe", .strategy = &gpipe_strategy, .is_usual = false},
      ClusterSchedule{.name = "interleaved", .strategy = &interleaved_strategy, .shape = turns},
      ClusterSchedule{.name = "zb_h1", .strategy = &zb_h1_strategy, .splits_backward = true},
      ClusterSchedule{.name = "zb_v", .strategy = &zb_v_strategy, .shape = v, .splits_backward = true},
      ClusterSchedule{.name = "v_half", .strategy = &v_half_strategy, .shape = v, .splits_backward = true},
      ClusterSchedule{.name = "dualpipe_v", .strategy = &dualpipe_v_strategy, .shape = v, .splits_backward = true},
  };
  return all;
}

std::span<const ClusterSaver> cluster_savers() {
  static const std::array all{
      ClusterSaver{"none", nullptr, nullptr},
      ClusterSaver{"core", &recompute_ops_strategy, nullptr},
      ClusterSaver{"full", nullptr, &full_recompute_strategy},
      ClusterSaver{"rotor", nullptr, &rotor_strategy, false},
      ClusterSaver{"greedy_recompute", nullptr, &greedy_recompute_strategy, false},
      ClusterSaver{"offload_greedy", nullptr, &offload_greedy_strategy, false},
  };
  return all;
}

std::optional<std::vector<std::uint32_t>> read_choices(std::string_view text) {
  std::vector<std::uint32_t> values;
  if (text == "auto") return values;
  constexpr std::uint32_t most = 65'536;
  while (true) {
    const std::string_view one = text.substr(0, text.find('+'));
    std::uint32_t from = 0, to = 0;
    const char* end = one.data() + one.size();
    std::from_chars_result read = std::from_chars(one.data(), end, from);
    to = from;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, to);
    if (read.ec != std::errc{} || read.ptr != end || to < from || to > most) return std::nullopt;
    for (std::uint32_t value = from; value <= to; ++value) values.push_back(value);
    if (one.size() == text.size()) break;
    text.remove_prefix(one.size() + 1);
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

std::vector<std::string_view> read_words(std::string_view text) {
  std::vector<std::string_view> words;
  if (text == "auto") return words;
  while (true) {
    const std::string_view one = text.substr(0, text.find('+'));
    words.push_back(one);
    if (one.size() == text.size()) return words;
    text.remove_prefix(one.size() + 1);
  }
}

ClusterSpace cluster_space(const ClusterExtent& extent, const ClusterOptions& options) {
  return Enumeration(extent, options).run();
}

ComposedPoint composed_rank(const ClusterPoint& point, bool sequence) {
  ComposedPoint made;
  if (point.saving().transform != nullptr) add(made, *point.saving().transform, {});
  if (point.context > 1) add(made, context_strategy, {{"ranks", std::to_string(point.context)}});
  if (point.tensor > 1) {
    add(made, megatron_strategy, {{"tensor", std::to_string(point.tensor)}, {"sequence", sequence ? "yes" : "no"}});
  }
  if (point.experts > 1) add(made, expert_strategy, {{"ranks", std::to_string(point.experts)}});
  return made;
}

std::optional<std::string> refused_option(const ClusterOptions& options, std::string_view why) {
  const std::array<std::pair<std::string_view, std::string>, 3> asked{
      std::pair(context_strategy.name, "context=" + options.context),
      std::pair(expert_strategy.name, "expert=" + options.experts),
      std::pair(megatron_strategy.name, "t=" + options.tensor)};
  const auto found =
      std::ranges::find_if(asked, [&](const auto& each) { return why.starts_with(std::string(each.first) + ": "); });
  return found == asked.end() ? std::nullopt : std::optional(found->second);
}

ComposedPoint composed_replica(const ClusterPoint& point, bool sequence) {
  ComposedPoint made = composed_rank(point, sequence);
  const std::array<const StrategyInfo*, 4> sharing{&data_parallel_strategy, &zero1_strategy, &zero2_strategy,
                                                   &zero3_strategy};
  if (point.copies > 1) add(made, data_parallel_strategy, {{"ranks", std::to_string(point.copies)}});
  if (point.sharers() > 1) add(made, *sharing[point.zero], {{"ranks", std::to_string(point.sharers())}});
  return made;
}

ComposedPoint composed(const ClusterPoint& point, bool sequence) {
  ComposedPoint made = composed_replica(point, sequence);
  if (point.stages > 1) {
    std::map<std::string, std::string, std::less<>> given{{"stages", std::to_string(point.stages)}};
    if (point.way().shape == PipelineShape::turns) given.emplace("chunks", std::to_string(point.chunks));
    add(made, *point.way().strategy, std::move(given));
  }
  if (point.saving().behind != nullptr) add(made, *point.saving().behind, {});
  if (made.passes.empty()) add(made, store_all_strategy, {});
  return made;
}

}  // namespace plimsoll
