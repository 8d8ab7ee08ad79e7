#include "experiments/fits/fits_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "experiments/fits/reserve_errors.h"
#include "experiments/fits/training.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_shown = 8;

std::string line(std::string_view what, Bytes bytes, const std::string& note = {}) {
  return fmt::format("  {:<24}{:>12}{}{}\n", what, format_bytes(bytes), note.empty() ? "" : "  ", note);
}

Bytes kept_back(const FitsAnswer& answer) {
  return answer.reserves.needed(answer.needs.reserved) - answer.reserves.context - answer.needs.reserved;
}

std::string errors_of(const std::optional<ReserveErrors>& errors) {
  if (!errors) return "no step of such a model was measured";
  return fmt::format("{} steps of {} measured {:+.1f} to {:+.1f} % beyond predictions", errors->steps, errors->models,
                     100 * errors->least, 100 * errors->most);
}

std::string note_of(const NeedPart& part, const AskedTraining& training) {
  if (part.name == ahead_part) return fmt::format("{} before their turn: --prefetch-batches", training.batches_ahead);
  if (part.name == evaluation_part) return fmt::format("{}: --evaluate", written(*training.evaluation));
  return "";
}

std::string parts_table(const FitsAnswer& answer) {
  const TrainingNeeds& needs = answer.needs;
  std::string text;
  for (const NeedPart& part : needs.parts) text += line(part.name, part.bytes, note_of(part, answer.training));
  text += line("live at the peak", needs.live, needs.moment);
  text += line("reserved beyond it", needs.reserved - needs.live,
               fmt::format("PyTorch's caching allocator, simulated; {} with expandable segments",
                           format_bytes(needs.expandable - needs.live)));
  text += line("CUDA context", answer.reserves.context, "reported, not simulated: --context");
  text += line("kept back", kept_back(answer),
               fmt::format("{:g} % of the reserved memory: --margin; {}", 100 * answer.reserves.margin,
                           errors_of(needs.errors)));
  text += line("needed", answer.reserves.needed(needs.reserved),
               fmt::format("of {} on {}", format_bytes(answer.reserves.capacity), answer.device));
  if (answer.by_foreach) {
    text += line("needed by foreach", *answer.by_foreach,
                 "the default of torch.optim; what stands above is with fused=True: --update-kernels");
  }
  if (needs.host > Bytes{0}) text += line("host memory", needs.host);
  text += line("a checkpoint", needs.checkpoint, "on a disk: trained parameters and states");
  return text + fmt::format("  {:<24}{:>12}\n", "time of an iteration", format_seconds(needs.time));
}

std::string verdict(const FitsAnswer& answer) {
  const AskedTraining& training = answer.training;
  std::string text =
      fmt::format("{} {} on {}\n", training.trace, answer.needs.fits ? "fits" : "does not fit", answer.device);
  if (answer.needs.parameters > 0) {
    text +=
        fmt::format("  {:<24}{:>12.3f} billion\n", "parameters", static_cast<double>(answer.needs.parameters) / 1e9);
  }
  if (answer.stored) {
    text += line("stored tensors", answer.stored->bytes,
                 fmt::format("{} of {} in {}, as the configuration has them", answer.stored->tensors,
                             answer.stored->dtypes, answer.stored->file));
  }
  return text;
}

std::string what_of(const ChangedTraining& changed) {
  std::string text;
  for (const TrainingChange& change : changed.changes) text += (text.empty() ? "" : " + ") + change.what;
  return text;
}

Json reserve_errors_json(const std::optional<ReserveErrors>& errors) {
  if (!errors) return {};
  return {{"models", std::string(errors->models)},
          {"steps", errors->steps},
          {"least", errors->least},
          {"most", errors->most}};
}

Json needs_json(const TrainingNeeds& needs, const Reserves& reserves, std::uint32_t devices) {
  Json parts = Json::object();
  for (const NeedPart& part : needs.parts) parts[part.name] = part.bytes.count;
  return {{"live_bytes", needs.live.count},
          {"at_peak", parts},
          {"peak", needs.moment},
          {"reserved_bytes", needs.reserved.count},
          {"needed_bytes", reserves.needed(needs.reserved, devices).count},
          {"expandable_reserved_bytes", needs.expandable > Bytes{0} ? Json(needs.expandable.count) : Json()},
          {"host_bytes", needs.host.count},
          {"checkpoint_bytes", needs.checkpoint.count},
          {"reserve_errors", reserve_errors_json(needs.errors)},
          {"iteration_s", needs.time.value},
          {"devices", needs.devices}};
}

Json stored_json(const std::optional<StoredTensors>& stored) {
  if (!stored) return {};
  return {
      {"file", stored->file}, {"tensors", stored->tensors}, {"bytes", stored->bytes.count}, {"dtypes", stored->dtypes}};
}

/// For the plan, beside batches before their turn.
Bytes room_of_plan(const AskedTraining& training, const TrainingNeeds& needs, const Reserves& reserves) {
  return reserves.room(training.devices) - needs.ahead;
}

Json training_json(const AskedTraining& training, const TrainingNeeds& needs, const Reserves& reserves) {
  return {{"trace", training.trace},
          {"platform", training.platform},
          {"strategy", training.strategy},
          {"micro_batches", training.micro_batches},
          {"optimizer", std::string(written(training.optimizer))},
          {"states", std::string(written(training.states))},
          {"update_kernels", std::string(written(training.update_kernels))},
          {"evaluate", training.evaluation ? Json(written(*training.evaluation)) : Json()},
          {"batches_ahead", training.batches_ahead},
          {"command", command_of(training, room_of_plan(training, needs, reserves))}};
}

}  // namespace

std::string needs_table(const FitsAnswer& answer) {
  return verdict(answer) + parts_table(answer);
}

std::string changes_table(const FitsAnswer& answer) {
  if (!answer.has_changes || answer.needs.fits) return "";
  if (answer.changes.empty()) return "nothing that was tried makes it fit: up to three changes together\n";
  const bool has_tokens = answer.changes.front().tokens > 0;
  std::string text = fmt::format("what makes it fit, the fastest first:\n  {:>14}  {:>12}  {}\n",
                                 has_tokens ? "time a token" : "time a sample", "needed", "change");
  for (std::size_t k = 0; k < std::min(most_shown, answer.changes.size()); ++k) {
    const ChangedTraining& each = answer.changes[k];
    const std::string host =
        each.needs.host > Bytes{0} ? fmt::format(", {} of host memory", format_bytes(each.needs.host)) : "";
    text += fmt::format("  {:>14}  {:>12}  {}{}{}\n", format_seconds(each.time_of_one()),
                        format_bytes(answer.reserves.needed(each.needs.reserved, each.training.devices)), what_of(each),
                        host, each.is_same() ? "" : "  (*)");
    for (const TrainingChange& change : each.changes)
      text += fmt::format("  {:>14}  {:>12}    {}\n", "", "", change.framework);
    text += fmt::format("  {:>14}  {:>12}    {}\n", "", "",
                        command_of(each.training, room_of_plan(each.training, each.needs, answer.reserves)));
  }
  if (answer.changes.size() > most_shown)
    text += fmt::format("  and {} more: --json\n", answer.changes.size() - most_shown);
  const auto is_same = [](const ChangedTraining& each) { return each.is_same(); };
  if (std::ranges::any_of(answer.changes, [](const ChangedTraining& each) { return each.training.devices > 1; }))
    text +=
        fmt::format("of several devices {} are NCCL's: --communicator\n", format_bytes(answer.reserves.communicator));
  if (!std::ranges::all_of(answer.changes, is_same)) text += "(*) other updates than those asked for\n";
  return text;
}

Json fits_json(const FitsAnswer& answer, const std::string& made_by) {
  Json changes = Json::array();
  for (const ChangedTraining& each : answer.changes) {
    Json listed = Json::array();
    for (const TrainingChange& change : each.changes) {
      listed.push_back({{"what", change.what}, {"framework", change.framework}, {"same_updates", change.is_same}});
    }
    changes.push_back({{"changes", listed},
                       {"training", training_json(each.training, each.needs, answer.reserves)},
                       {"needs", needs_json(each.needs, answer.reserves, each.training.devices)},
                       {"samples", each.samples},
                       {"tokens", each.tokens}});
  }
  return {{"format", "plimsoll.fits.v1"},
          {"made_by", made_by},
          {"fits", answer.needs.fits},
          {"device", answer.device},
          {"training", training_json(answer.training, answer.needs, answer.reserves)},
          {"parameters", answer.needs.parameters > 0 ? Json(answer.needs.parameters) : Json()},
          {"stored_tensors", stored_json(answer.stored)},
          {"capacity_bytes", answer.reserves.capacity.count},
          {"context_bytes", answer.reserves.context.count},
          {"margin", answer.reserves.margin},
          {"communicator_bytes", answer.reserves.communicator.count},
          {"needs", needs_json(answer.needs, answer.reserves, answer.training.devices)},
          {"needed_by_foreach_bytes", answer.by_foreach ? Json(answer.by_foreach->count) : Json()},
          {"changes", answer.has_changes && !answer.needs.fits ? changes : Json()}};
}

}  // namespace plimsoll
