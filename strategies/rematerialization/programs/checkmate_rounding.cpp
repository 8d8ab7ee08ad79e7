#include "strategies/rematerialization/programs/checkmate_rounding.h"

#include <algorithm>
#include <unordered_map>

namespace plimsoll {
namespace {

/// What cannot be made again stays until its last reader.
void keep_what_must_stay(const OpModel& model, Kept& kept) {
  for (std::size_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!value.maker) {
      for (std::vector<bool>& stage : kept) stage[v] = true;
      continue;
    }
    if (!model.ops[*value.maker].once || value.readers.empty()) continue;
    for (std::size_t t = *value.maker + 1; t <= value.readers.back(); ++t) kept[t][v] = true;
  }
}

/// One stage: which ops run, and which of them save.
struct OneStage {
  std::vector<bool> runs, saves;
};

bool is_made(const OpModel& model, const OneStage& stage, std::size_t v) {
  const std::uint32_t maker = *model.values[v].maker;
  if (!stage.runs[maker]) return false;
  const std::vector<std::uint32_t>& always = model.ops[maker].ways.back().makes;
  return stage.saves[maker] || std::ranges::find(always, v) != always.end();
}

/// Makes the value run in the stage; false if that is not allowed.
bool make(const OpModel& model, OneStage& stage, std::size_t t, std::size_t v) {
  const std::uint32_t maker = *model.values[v].maker;
  if (maker > t || (model.ops[maker].once && maker != t)) return false;
  stage.runs[maker] = true;
  const std::vector<std::uint32_t>& always = model.ops[maker].ways.back().makes;
  if (std::ranges::find(always, v) == always.end()) stage.saves[maker] = true;
  return true;
}

}  // namespace

std::optional<OpSequence> least_runs(const OpModel& model, Kept kept) {
  keep_what_must_stay(model, kept);
  OpSequence sequence;
  for (std::size_t t = 0; t < model.ops.size(); ++t) {
    OneStage stage{std::vector<bool>(t + 1, false), std::vector<bool>(t + 1, false)};
    stage.runs[t] = true;
    for (std::size_t v = 0; v < model.values.size(); ++v) {
      const std::optional<std::uint32_t> maker = model.values[v].maker;
      if (!maker || !kept[t + 1][v] || kept[t][v]) continue;
      if (*maker > t || !make(model, stage, t, v)) kept[t + 1][v] = false;
    }
    for (std::size_t k = t + 1; k-- > 0;) {
      if (!stage.runs[k]) continue;
      for (const std::uint32_t v : model.ops[k].reads) {
        if (kept[t][v] || is_made(model, stage, v)) continue;
        if (!make(model, stage, t, v)) return std::nullopt;
      }
    }
    for (std::size_t k = 0; k <= t; ++k) {
      if (!stage.runs[k]) continue;
      const bool nothing = model.ops[k].ways.size() > 1 && !stage.saves[k];
      sequence.push_back({model.ops[k].id, nothing ? Saving::nothing : Saving::keep});
    }
  }
  if (!is_runnable(model, sequence)) return std::nullopt;
  return sequence;
}

bool is_runnable(const OpModel& model, const OpSequence& sequence) {
  std::unordered_map<std::uint32_t, std::size_t> number;
  for (std::size_t o = 0; o < model.ops.size(); ++o) number[model.ops[o].id.index] = o;
  std::vector<bool> there(model.values.size(), false), ran(model.ops.size(), false);
  for (std::size_t v = 0; v < there.size(); ++v) there[v] = !model.values[v].maker;
  for (const OpRun& run : sequence) {
    const std::size_t o = number.at(run.op.index);
    const ModelOp& op = model.ops[o];
    if ((op.once && ran[o]) || std::ranges::any_of(op.reads, [&](std::uint32_t v) { return !there[v]; })) return false;
    ran[o] = true;
    const OpWay& way = run.saving == Saving::nothing ? op.ways.back() : op.ways.front();
    for (const std::uint32_t v : way.clears) there[v] = false;
    for (const std::uint32_t v : way.makes) there[v] = true;
  }
  return std::ranges::all_of(ran, [](bool r) { return r; });
}

}  // namespace plimsoll
