#include "experiments/truth/measured_runs.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "sim/io/quantity.h"
#include "sim/io/shipped.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr std::string_view measured_runs_format = "plimsoll.measured_runs.v1";

/// A run as it is written: the strategy is understood when its place is known.
struct MeasuredRunDraft {
  MeasuredRun run;
  std::optional<YamlCursor> strategy;
};

void read_measured_time(MeasuredRunDraft& d, const YamlCursor& c) {
  d.run.measured = c.seconds();
  if (parse_seconds(c.string()).fine() && !(d.run.measured->value > 0)) {
    c.complain("expected a time above 0, " + c.found());
  }
}

const Field<MeasuredRunDraft, const YamlCursor&> measured_run_fields[] = {
    {"name", required, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.name = c.string(); }},
    {"trace", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.trace = c.string(); }},
    {"platform", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.platform = c.string(); }},
    {"strategy", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.strategy = c; }},
    {"micro_batches", optional,
     [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.micro_batches = c.count(); }},
    {"optimizer", optional,
     [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.optimizer = one_of<Optimizer>(c); }},
    {"states", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.states = one_of<States>(c); }},
    {"update_kernels", optional,
     [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.update_kernels = one_of<UpdateKernels>(c); }},
    {"gradients", optional,
     [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.question.gradients = one_of<Gradients>(c); }},
    {"measured", optional, read_measured_time},
    {"measured_peak", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.peak = c.bytes(); }},
    {"measured_reserved", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.reserved = c.bytes(); }},
    {"choice", optional, [](MeasuredRunDraft&, const YamlCursor& c) { c.string(); }},  // of older files, and unused
    {"not_expressed", optional, [](MeasuredRunDraft& d, const YamlCursor& c) { d.run.why_not = c.string(); }},
};

MeasuredRun read_measured_run(const YamlCursor& cursor) {
  MeasuredRunDraft draft;
  draft.run.question.optimizer = Optimizer::adam;
  draft.run.question.engine = Engine::event;
  read_fields(cursor, measured_run_fields, draft);
  MeasuredRun& run = draft.run;
  if (!cursor.is_object() || !run.why_not.empty()) return run;
  if (run.question.trace.empty()) cursor.complain_missing_key("trace");
  if (run.question.platform.empty()) cursor.complain_missing_key("platform");
  if (!run.measured) cursor.complain_missing_key("measured");
  if (!draft.strategy) {
    cursor.complain_missing_key("strategy");
    return run;
  }
  try {
    run.question.strategy = parse_pipeline(draft.strategy->string(), "strategy");
  } catch (const InputError& wrong) {
    draft.strategy->complain(wrong.what());
  }
  return run;
}

const Field<MeasuredGroup, const YamlCursor&> measured_group_fields[] = {
    {"name", required, [](MeasuredGroup& g, const YamlCursor& c) { g.name = c.string(); }},
    {"title", required, [](MeasuredGroup& g, const YamlCursor& c) { g.title = c.string(); }},
    {"origin", required, [](MeasuredGroup& g, const YamlCursor& c) { g.origin = c.string(); }},
    {"efficiency", required, [](MeasuredGroup& g, const YamlCursor& c) { g.efficiency = c.string(); }},
    {"runs", required,
     [](MeasuredGroup& g, const YamlCursor& c) {
       std::set<std::string> names;
       for (const YamlCursor& element : c.elements()) {
         MeasuredRun& run = g.runs.emplace_back(read_measured_run(element));
         if (!names.insert(run.name).second) element.complain(fmt::format("a second run '{}'", run.name));
       }
     }},
};

struct MeasuredFile {
  std::vector<MeasuredGroup> groups;
};

const Field<MeasuredFile, const YamlCursor&> measured_file_fields[] = {
    {"format", required,
     [](MeasuredFile&, const YamlCursor& c) {
       if (const std::string format = c.string(); c.is_scalar() && format != measured_runs_format) {
         c.complain(fmt::format("expected {}, found {}", measured_runs_format, format));
       }
     }},
    {"groups", required,
     [](MeasuredFile& f, const YamlCursor& c) {
       std::set<std::string> names;
       for (const YamlCursor& element : c.elements()) {
         MeasuredGroup& group = f.groups.emplace_back();
         read_fields(element, measured_group_fields, group);
         if (!names.insert(group.name).second) element.complain(fmt::format("a second group '{}'", group.name));
       }
     }},
};

}  // namespace

std::vector<MeasuredGroup> parse_measured_runs(const std::string& text, std::string file_name) {
  YamlDocument document(text, std::move(file_name));
  MeasuredFile file;
  read_fields(document.root(), measured_file_fields, file);
  document.throw_if_any();
  return std::move(file.groups);
}

Pipeline with_free_sends(const Pipeline& pipeline) {
  std::string text = pipeline.text;
  for (const std::string_view words : {"(sends=blocking)", ",sends=blocking"}) {
    for (std::size_t at; (at = text.find(words)) != std::string::npos;) text.erase(at, words.size());
  }
  return parse_pipeline(std::move(text), "strategy");
}

std::filesystem::path shipped_measured_runs() {
  return shipped_file("experiments/papers/measured_runs.yaml");
}

}  // namespace plimsoll
