#include "experiments/sweep_inputs.h"

#include <fmt/format.h>

#include "experiments/model.h"
#include "platforms/platform_file.h"
#include "sim/io/text_file.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

std::string digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return fmt::format("{:016x}", hash);
}

}  // namespace

SweepInputs::SweepInputs(const Experiment& e) {
  for (const std::string& trace : e.traces) {
    if (is_made_by_rule(trace)) continue;
    const std::filesystem::path path = find_trace(trace);
    traces_[trace] = {path.string(), read_text_file(path)};
  }
  for (const std::string& platform : e.platforms) {
    const std::filesystem::path path = find_platform(platform);
    platforms_[platform] = {path.string(), read_text_file(path)};
  }
}

ProblemOutcome SweepInputs::problem(const Question& question) const {
  const auto trace = traces_.find(question.trace);
  const ReadFile& platform = platforms_.at(question.platform);
  return problem_of(
      question,
      trace == traces_.end() ? load_model(question.trace) : parse_trace(trace->second.text, trace->second.path),
      parse_platform(platform.text, platform.path));
}

Json SweepInputs::digests() const {
  Json inputs = Json::object();
  for (const auto* files : {&traces_, &platforms_}) {
    for (const auto& [reference, file] : *files) inputs[reference] = digest(file.text);
  }
  return inputs;
}

}  // namespace plimsoll
