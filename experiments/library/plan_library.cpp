#include "experiments/library/plan_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/io/fields.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/one_of.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

using enum Need;

struct LibraryDraft {
  std::vector<LibraryInstance> instances;
};

const Field<KnownPlan, JsonCursor> known_plan_fields[] = {
    {"time_s", required, [](KnownPlan& k, JsonCursor c) { k.time = c.seconds(); }},
    {"peak_bytes", required, [](KnownPlan& k, JsonCursor c) { k.peak = c.bytes(); }},
    {"by", required, [](KnownPlan& k, JsonCursor c) { k.found.by = c.string(); }},
    {"version", required, [](KnownPlan& k, JsonCursor c) { k.found.version = c.string(); }},
    {"date", required, [](KnownPlan& k, JsonCursor c) { k.found.date = c.string(); }},
    {"plan", optional, [](KnownPlan& k, JsonCursor c) { k.plan = c.string(); }},
};

const Field<KnownBound, JsonCursor> known_bound_fields[] = {
    {"time_s", required, [](KnownBound& k, JsonCursor c) { k.time = c.seconds(); }},
    {"by", required, [](KnownBound& k, JsonCursor c) { k.found.by = c.string(); }},
    {"version", required, [](KnownBound& k, JsonCursor c) { k.found.version = c.string(); }},
    {"date", required, [](KnownBound& k, JsonCursor c) { k.found.date = c.string(); }},
};

const Field<LibraryBudget, JsonCursor> library_budget_fields[] = {
    {"bytes", required, [](LibraryBudget& b, JsonCursor c) { b.budget = c.bytes(); }},
    {"best", optional, [](LibraryBudget& b, JsonCursor c) { read_fields(c, known_plan_fields, b.best.emplace()); }},
    {"bound", optional, [](LibraryBudget& b, JsonCursor c) { read_fields(c, known_bound_fields, b.bound.emplace()); }},
};

/// What contradicts itself in a budget.
void judge_budget(const LibraryBudget& budget, Bytes before, JsonCursor c) {
  if (budget.budget <= before) c.complain("expected budgets in ascending order");
  if (budget.best && budget.best->peak > budget.budget) c.complain("the peak of the best plan is above the budget");
  if (budget.best && budget.bound && budget.best->time < budget.bound->time) {
    c.complain("the best plan is faster than the bound");
  }
}

const Field<LibraryInstance, JsonCursor> library_instance_fields[] = {
    {"name", required, [](LibraryInstance& i, JsonCursor c) { i.name = c.string(); }},
    {"trace", required, [](LibraryInstance& i, JsonCursor c) { i.trace = c.string(); }},
    {"platform", required, [](LibraryInstance& i, JsonCursor c) { i.platform = c.string(); }},
    {"class", required, [](LibraryInstance& i, JsonCursor c) { i.plans = one_of<PlanClass>(c); }},
    {"origin", required, [](LibraryInstance& i, JsonCursor c) { i.origin = c.string(); }},
    {"store_all_bytes", required, [](LibraryInstance& i, JsonCursor c) { i.store_all = c.bytes(); }},
    {"budgets", required,
     [](LibraryInstance& i, JsonCursor c) {
       c.array([&](JsonCursor one) {
         const Bytes before = i.budgets.empty() ? Bytes{} : i.budgets.back().budget;
         LibraryBudget& budget = i.budgets.emplace_back();
         read_fields(one, library_budget_fields, budget);
         judge_budget(budget, before, one);
       });
     }},
};

void read_library_format(LibraryDraft&, JsonCursor c) {
  const std::string format = c.string();
  if (format != "plimsoll.memplanlib.v1")
    c.complain(fmt::format("expected plimsoll.memplanlib.v1, found '{}'", format));
}

const Field<LibraryDraft, JsonCursor> library_fields[] = {
    {"format", required, read_library_format},
    {"instances", required,
     [](LibraryDraft& d, JsonCursor c) {
       std::set<std::string> names;
       c.array([&](JsonCursor one) {
         LibraryInstance& instance = d.instances.emplace_back();
         read_fields(one, library_instance_fields, instance);
         if (!names.insert(instance.name).second) one.complain(fmt::format("a second '{}'", instance.name));
       });
     }},
};

}  // namespace

std::vector<LibraryInstance> read_plan_library(const std::filesystem::path& index) {
  LibraryDraft draft;
  JsonDocument document(read_text_file(index), index.string());
  document.read([&](JsonCursor root) { read_fields(root, library_fields, draft); });
  for (LibraryInstance& instance : draft.instances) {
    for (std::string* reference : {&instance.trace, &instance.platform}) {
      if (reference->starts_with("./") || reference->starts_with("../")) {
        *reference = (index.parent_path() / *reference).lexically_normal().generic_string();
      }
    }
  }
  return std::move(draft.instances);
}

std::filesystem::path shipped_plan_library() {
  return shipped_file("experiments/memplanlib/index.json");
}

}  // namespace plimsoll
