#include "strategies/hybrid/cluster/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
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
        compressions_(named(cluster_compressions(), options.compression)),
        offloads_(named(cluster_offloads(), options.offload)),
        updates_(named(cluster_updates(), options.updates)),
        planners_(planners_of(extent, options)),
        options_(options),
        framework_(cluster_framework(options.framework)) {}

  ClusterSpace run() && {
    if (std::ranges::find(planners_, 0) != planners_.end()) add_points();
    add_planners();
    std::ranges::sort(space_.points);
    if (space_.points.empty()) space_.empty_because = why_empty();
    refuse_what_is_asked_in_vain();
    return std::move(space_);
  }

 private:
  void note(std::size_t reached) { reached_ = std::max(reached_, reached); }

  /// Searches choose the numbers themselves, and operators of formulas need none.
  static std::vector<std::uint8_t> planners_of(const ClusterExtent& extent, const ClusterOptions& options) {
    const bool is_free = options.tensor == "auto" && options.stages == "auto" && options.replicas == "auto" &&
                         options.zero == "auto" && options.schedule == "auto" && options.framework == "any";
    const bool asks_none = extent.has_sizes || !extent.has_operators || extent.devices == 1 || !is_free;
    if (options.planners == "auto" && asks_none) return {0};
    return named(cluster_planners(), options.planners);
  }

  void add_planners() {
    for (const std::uint8_t planner : planners_) {
      if (planner == 0) continue;
      ClusterPoint point{.samples = extent_.given_samples, .planner = planner};
      if (framework_ != nullptr) {
        apart_because_ =
            fmt::format("for={}: {} has no plans of '{}'", framework_->name, framework_->title, point.planning().name);
        note(9);
        continue;
      }
      for (const std::uint8_t saver : savers_) {
        point.saver = saver;
        space_.points.push_back(point);
      }
    }
  }

  void add_points() {
    for (std::uint32_t tensor = 1; tensor <= (extent_.has_operators ? extent_.devices : 1); ++tensor) {
      const bool is_usual =
          extent_.in_node % tensor == 0 || (std::has_single_bit(tensor) && tensor <= extent_.in_largest_node);
      if (tensor_.values.empty() ? !is_usual : !tensor_.allows(tensor)) continue;
      note(1);
      for (std::uint32_t context = 1; context <= (extent_.has_operators ? extent_.devices / tensor : 1); ++context) {
        const bool is_divisor = extent_.usual_devices / tensor % context == 0;
        if (context_.values.empty() ? !is_divisor : !context_.allows(context)) continue;
        note(2);
        add_rows({.tensor = tensor, .context = context});
      }
    }
  }

  void add_rows(ClusterPoint point) {
    const std::size_t in_a_row = std::min<std::size_t>(extent_.devices / point.width(), extent_.model_stages);
    for (point.stages = 1; point.stages <= static_cast<std::uint32_t>(in_a_row); ++point.stages) {
      const bool is_usual = extent_.usual_devices <= few_devices ||
                            extent_.usual_devices / point.width() % point.stages == 0 ||
                            std::has_single_bit(point.stages);
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

  /// All that divide the micro-batches, in whole groups, of those asked for: others idle.
  std::vector<std::uint32_t> replicas_for(const ClusterPoint& point) const {
    const std::uint32_t micro_batches = extent_.batch / point.samples;
    std::vector<std::uint32_t> found;
    for (std::uint32_t d = std::min(extent_.devices / (point.width() * point.stages), micro_batches); d > 0; --d) {
      if (micro_batches % d != 0 || d % (point.experts * point.copies) != 0 || !replicas_.allows(d)) continue;
      found.push_back(d);
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
        add_memory(point);
      }
    }
  }

  void add_memory(ClusterPoint point) {
    for (const std::uint8_t saver : savers_) {
      point.saver = saver;
      for (const std::uint8_t compression : compressions_) {
        point.compression = compression;
        for (const std::uint8_t offload : offloads_) {
          point.offload = offload;
          for (const std::uint8_t updates : updates_) {
            point.updates = updates;
            const std::string why = why_not_together(point);
            if (!why.empty()) {
              apart_because_ = why;
              continue;
            }
            note(10);
            add(point);
          }
        }
      }
    }
  }

  /// Which option asks for what cannot follow the rest, and why; empty: all can.
  std::string why_not_together(const ClusterPoint& point) const {
    if (point.updates > 0 && !extent_.has_updates) {
      return fmt::format("updates={} leaves no point: without an optimizer there are no updates",
                         point.updating().name);
    }
    if (point.compression > 0 && (!extent_.has_operators || point.stages > 1 || point.saving().behind != nullptr)) {
      return fmt::format(
          "compression={} leaves no point: it packs what operators keep, not stages (p=1, saver=none+core)",
          point.compressing().name);
    }
    if (point.offloads_by_stages() && (point.saving().behind != nullptr || point.compression > 0)) {
      return fmt::format(
          "offload={} leaves no point: it chooses recomputation, too (saver=none+core, compression=none)",
          point.offloading().name);
    }
    return "";
  }

  void add(const ClusterPoint& point) {
    const std::optional<std::string> why = framework_ ? framework_->why_not(extent_, point) : std::nullopt;
    if (!why) {
      space_.points.push_back(point);
    } else {
      refused_.emplace(Asked{point.schedule, point.saver, point.compression, point.offload, point.updates, point.zero},
                       *why);
    }
  }

  /// What words ask for.
  struct Asked {
    std::uint8_t schedule, saver, compression, offload, updates;
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
    const auto in_vain = [&](const std::string& given, auto of_point, std::uint8_t value, std::string_view option,
                             std::span<const ClusterPass> table) {
      if (value == 0 || !is_in_vain(given, of_point, value)) return std::string();
      return fmt::format("{}={}", option, table[value].name);
    };
    for (const std::string& found :
         {in_vain(options_.compression, &ClusterPoint::compression, asked.compression, "compression",
                  cluster_compressions()),
          in_vain(options_.offload, &ClusterPoint::offload, asked.offload, "offload", cluster_offloads()),
          in_vain(options_.updates, &ClusterPoint::updates, asked.updates, "updates", cluster_updates())}) {
      if (!found.empty()) return found;
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
      case 9:
        return apart_because_;
      default:
        return fmt::format("schedule={} leaves no point: no such pipeline has so many stages and micro-batches",
                           options_.schedule);
    }
  }

  const ClusterExtent& extent_;
  Choices tensor_, context_, stages_, replicas_, experts_, copies_, zero_, chunks_, samples_;
  std::vector<std::uint8_t> schedules_, savers_, compressions_, offloads_, updates_, planners_;
  const ClusterOptions& options_;
  const ClusterFramework* framework_;  // null: any
  std::map<Asked, std::string> refused_;
  ClusterSpace space_;
  std::string apart_because_;
  std::size_t reached_ = 0;  // how many choices some point has passed
};

}  // namespace

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

}  // namespace plimsoll
