#include "experiments/sweep/point_key.h"

#include <fmt/format.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "experiments/study/build_name.h"
#include "sim/core/names.h"

namespace plimsoll {

std::string digest_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

PointKeys::PointKeys(const Experiment& experiment, const Json& digests)
    : experiment_(experiment), digests_(digests), settings_(to_json(experiment)) {
  for (const char* key : {"name", "traces", "platforms", "strategies", "memory", "micro_batches", "optimizer", "zip",
                          "exclude", "alias", "timeout_s", "memory_limit_bytes"}) {
    settings_.erase(key);
  }
}

std::string PointKeys::of(std::size_t group, std::size_t place, const CaseFacts& facts) const {
  const Question q = question_of(experiment_, group);
  const auto digest = [&](const std::string& name) { return digests_.value(name, Json()); };
  const std::optional<Bytes>& budget = facts.budgets.at(place);
  Json inputs{{"build", build_name()},
              {"settings", settings_},
              {"trace", {q.trace, digest(q.trace)}},
              {"platform", {q.platform, digest(q.platform)}},
              {"micro_batches", q.micro_batches},
              {"optimizer", written(q.optimizer)},
              {"strategy", {q.strategy.text, digest(q.strategy.text)}},
              {"budget", or_null(budget ? budget : facts.capacity)}};
  if (q.within != Within::live) {  // a budget may have the plan of a smaller one
    for (const std::optional<Bytes>& each : facts.budgets) inputs["budgets"].push_back(or_null(each));
  }
  return digest_of(json_text(inputs));
}

bool same_files_of(const Json& record, const Json& digests, const Json& others) {
  const char* const named[] = {"trace", "platform", "strategy"};
  return std::ranges::all_of(named, [&](const char* key) {
    const std::string name = record.value(key, "");
    return digests.value(name, Json()) == others.value(name, Json());
  });
}

}  // namespace plimsoll
