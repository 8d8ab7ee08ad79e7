#include "experiments/load/load_record.h"

#include "experiments/load/load_mark.h"
#include "sim/io/parameter_groups.h"

namespace plimsoll {
namespace {

Json load_bytes_json(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count) : Json(nullptr);
}

Json load_number_json(const std::optional<double>& number) {
  return number ? Json(*number) : Json(nullptr);
}

std::optional<Bytes> load_bytes_in(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(Bytes{json.get<std::int64_t>()});
}

/// A point that fits, with what it takes a sample and a token.
Json load_fitting_json(const LoadQuestion& question, const LoadPoint* point) {
  if (point == nullptr) return nullptr;
  const auto each = [&](const std::optional<double>& count) {
    return load_number_json(count ? std::optional(point->makespan->value / *count) : std::nullopt);
  };
  return {{"value", point->value},
          {"makespan_s", point->makespan->value},
          {"per_sample_s", each(question.samples_at(point->value))},
          {"per_token_s", each(question.tokens_at(point->value))},
          {"peak_bytes", point->peak->count},
          {"gap", load_number_json(point->gap)}};
}

Json load_next_json(const LoadQuestion& question, const LoadMark& mark) {
  if (mark.largest == nullptr) return nullptr;
  Json json{{"value", nullptr},           {"proof", written(mark.proof)}, {"needs_bytes", nullptr},
            {"needs_is_proven", nullptr}, {"bound_bytes", nullptr},       {"reason", nullptr}};
  if (mark.proof == NextProof::range_ends) return json;
  json["value"] = mark.largest->value + question.range.step;
  if (mark.next == nullptr) return json;
  json["needs_bytes"] = load_bytes_json(mark.next->smallest);
  if (mark.next->smallest) json["needs_is_proven"] = mark.next->smallest_is_proven;
  json["bound_bytes"] = load_bytes_json(mark.next->bound);
  json["reason"] = mark.next->reason;
  return json;
}

Json load_line_json(const LoadQuestion& question, const LoadLine& line) {
  const LoadMark mark = mark_of(question, line);
  Json json{{"strategy", line.strategy}, {"largest", load_fitting_json(question, mark.largest)}};
  json["next"] = load_next_json(question, mark);
  if (question.within) json["within"] = load_fitting_json(question, line.largest_within(*question.within));
  json["holes"] = mark.holes;
  json["beyond"] = mark.beyond;
  json["points"] = Json::array();
  for (const LoadPoint& point : line.points) json["points"].push_back(to_json(point));
  return json;
}

Json load_bound_json(const LoadQuestion& question, const LoadAnswer& answer) {
  Json json{{"largest", nullptr}, {"points", Json::array()}};
  for (const LoadBoundPoint& point : answer.bounds) {
    if (point.least <= question.memory) json["largest"] = point.value;
    json["points"].push_back(to_json(point));
  }
  return json;
}

}  // namespace

Json to_json(const LoadPoint& point) {
  return {{"value", point.value},
          {"outcome", written(point.outcome)},
          {"reason", point.reason},
          {"chosen", point.chosen},
          {"makespan_s", point.makespan ? Json(point.makespan->value) : Json(nullptr)},
          {"peak_bytes", load_bytes_json(point.peak)},
          {"gap", load_number_json(point.gap)},
          {"smallest_feasible_bytes", load_bytes_json(point.smallest)},
          {"smallest_is_proven", point.smallest ? Json(point.smallest_is_proven) : Json(nullptr)},
          {"lower_bound_bytes", load_bytes_json(point.bound)}};
}

LoadPoint load_point_of(const Json& json) {
  LoadPoint point{.value = json.at("value").get<std::uint32_t>(),
                  .outcome = *from_name<Outcome>(json.at("outcome").get<std::string>()),
                  .reason = json.at("reason").get<std::string>(),
                  .chosen = json.at("chosen").get<std::string>(),
                  .peak = load_bytes_in(json.at("peak_bytes")),
                  .smallest = load_bytes_in(json.at("smallest_feasible_bytes")),
                  .bound = load_bytes_in(json.at("lower_bound_bytes"))};
  if (const Json& makespan = json.at("makespan_s"); !makespan.is_null())
    point.makespan = Seconds{makespan.get<double>()};
  if (const Json& gap = json.at("gap"); !gap.is_null()) point.gap = gap.get<double>();
  if (const Json& proven = json.at("smallest_is_proven"); !proven.is_null())
    point.smallest_is_proven = proven.get<bool>();
  return point;
}

Json to_json(const LoadBoundPoint& point) {
  return {{"value", point.value}, {"least_bytes", point.least.count}, {"by", point.by}};
}

LoadBoundPoint load_bound_of(const Json& json) {
  return {json.at("value").get<std::uint32_t>(), Bytes{json.at("least_bytes").get<std::int64_t>()},
          json.at("by").get<std::string>()};
}

Json load_json(const LoadQuestion& question, const LoadAnswer& answer, const std::string& made_by) {
  const auto number = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
  Json json{{"format", "plimsoll.load.v1"},
            {"made_by", made_by},
            {"trace", question.base.trace},
            {"platform", question.base.platform},
            {"vary", written(question.varied)},
            {"range", {{"from", question.range.from}, {"to", question.range.to}, {"step", question.range.step}}},
            {"memory_budget_bytes", question.memory.count},
            {"within_s", question.within ? Json(question.within->value) : Json(nullptr)},
            {"micro_batches", question.base.micro_batches},
            {"optimizer", written(question.base.optimizer)},
            {"engine", written(question.base.engine)},
            {"batch", number(question.batch)},
            {"sequence", number(question.sequence)},
            {"times_rescaled", answer.times_rescaled},
            {"lines", Json::array()}};
  if (!question.base.parameter_groups.empty()) json["parameter_groups"] = written(question.base.parameter_groups);
  if (question.base.ema) json["ema"] = true;
  if (question.base.clip_norm) json["clip_norm"] = true;
  for (const LoadLine& line : answer.lines) json["lines"].push_back(load_line_json(question, line));
  json["bound"] = load_bound_json(question, answer);
  return json;
}

}  // namespace plimsoll
