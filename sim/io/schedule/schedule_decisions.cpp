#include "sim/io/schedule/schedule_decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/json/json.h"
#include "sim/io/one_of.h"

namespace plimsoll {
namespace {

using enum Need;

/// A count of ranks, or of numbers of a dimension.
std::uint32_t positive(JsonCursor c) {
  const std::uint32_t count = c.index();
  if (count == 0) c.complain("expected at least 1, found 0");
  return count;
}

/// Several axes are named together with signs between their names.
std::string axis_name(JsonCursor c) {
  const std::string name = c.string();
  const auto is_plain = [](char x) { return std::isalnum(static_cast<unsigned char>(x)) != 0 || x == '_'; };
  if (c.is_word() && (name.empty() || !std::ranges::all_of(name, is_plain))) {
    c.complain(fmt::format("expected letters, digits and underscores, found '{}'", name));
  }
  return name;
}

const Field<Axis, JsonCursor> axis_fields[] = {
    {"axis", required, [](Axis& axis, JsonCursor c) { axis.name = axis_name(c); }},
    {"ranks", required, [](Axis& axis, JsonCursor c) { axis.ranks = positive(c); }},
    {"collectives", optional, [](Axis& axis, JsonCursor c) { axis.way = one_of<CollectiveWay>(c); }},
    {"shares_micro_batches", optional, [](Axis& axis, JsonCursor c) { axis.shares_micro_batches = c.boolean(); }},
    {"scatters", optional, [](Axis& axis, JsonCursor c) { axis.scatters = c.boolean(); }},
};

const Field<Decisions::Padding, JsonCursor> padding_fields[] = {
    {"dimension", required, [](Decisions::Padding& p, JsonCursor c) { p.dimension = c.string(); }},
    {"from", required, [](Decisions::Padding& p, JsonCursor c) { p.from = positive(c); }},
    {"to", required, [](Decisions::Padding& p, JsonCursor c) { p.to = positive(c); }},
};

/// `dimension`, or `dimension around another`.
constexpr std::string_view around_word = " around ";

void read_shares(Decisions::Cut& cut, JsonCursor c) {
  c.object([&](std::string_view axis, JsonCursor value) {
    Decisions::Share& share = cut.shares.emplace_back(Decisions::Share{std::string(axis), value.string()});
    const std::size_t place = share.dimension.find(around_word);
    if (place == std::string::npos) return;
    share.around = share.dimension.substr(place + around_word.size());
    share.dimension.resize(place);
  });
}

const Field<Decisions::Cut, JsonCursor> cut_fields[] = {
    {"op", required, [](Decisions::Cut& cut, JsonCursor c) { cut.op = OpId{c.index()}; }},
    {"shares", required, read_shares},
};

void read_mesh(Decisions& decisions, JsonCursor c) {
  c.array([&](JsonCursor element) {
    Axis axis;
    read_fields(element, axis_fields, axis);
    if (axis.shares_micro_batches && !decisions.mesh.axes.empty()) {
      element.complain("ranks that have their own micro-batches are the first axis");
    }
    if (decisions.mesh.axis(axis.name)) element.complain(fmt::format("there is an axis '{}' already", axis.name));
    decisions.mesh.axes.push_back(std::move(axis));
  });
}

template <class Element, class Table>
void read_list(JsonCursor c, const Table& table, std::vector<Element>& list) {
  c.array([&](JsonCursor element) { read_fields(element, table, list.emplace_back()); });
}

const Field<Decisions, JsonCursor> decisions_fields[] = {
    {"strategy", required, [](Decisions& d, JsonCursor c) { d.strategy = c.string(); }},
    {"mesh", required, read_mesh},
    {"main_gradients", optional, [](Decisions& d, JsonCursor c) { d.main_gradients = one_of<MainGradients>(c); }},
    {"asynchronous", optional, [](Decisions& d, JsonCursor c) { d.asynchronous = axis_name(c); }},
    {"paddings", optional, [](Decisions& d, JsonCursor c) { read_list(c, padding_fields, d.paddings); }},
    {"notes", optional,
     [](Decisions& d, JsonCursor c) { c.array([&](JsonCursor note) { d.notes.push_back(note.string()); }); }},
    {"cuts", required, [](Decisions& d, JsonCursor c) { read_list(c, cut_fields, d.cuts); }},
};

}  // namespace

Decisions read_decisions(JsonCursor c) {
  Decisions decisions;
  read_fields(c, decisions_fields, decisions);
  return decisions;
}

std::string decisions_text(const Decisions& decisions) {
  Json object{{"strategy", decisions.strategy}, {"mesh", Json::array()}};
  for (const Axis& axis : decisions.mesh.axes) {
    Json& one = object["mesh"].emplace_back(
        Json{{"axis", axis.name}, {"ranks", axis.ranks}, {"collectives", written(axis.way)}});
    if (axis.shares_micro_batches) one["shares_micro_batches"] = true;
    if (axis.scatters) one["scatters"] = true;
  }
  if (decisions.main_gradients != MainGradients::as_parameters) {
    object["main_gradients"] = written(decisions.main_gradients);
  }
  if (!decisions.asynchronous.empty()) object["asynchronous"] = decisions.asynchronous;
  for (const Decisions::Padding& each : decisions.paddings) {
    object["paddings"].push_back({{"dimension", each.dimension}, {"from", each.from}, {"to", each.to}});
  }
  for (const std::string& note : decisions.notes) object["notes"].push_back(note);
  std::string text = json_text(object);
  text.back() = ',';
  text += "\n   \"cuts\": [";
  for (const Decisions::Cut& cut : decisions.cuts) {
    Json one{{"op", cut.op.index}, {"shares", Json::object()}};
    for (const Decisions::Share& share : cut.shares) {
      std::string dimensions = share.dimension;
      if (!share.around.empty()) dimensions.append(around_word).append(share.around);
      one["shares"][share.axis] = dimensions;
    }
    text += (&cut == decisions.cuts.data() ? "\n    " : ",\n    ") + json_text(one);
  }
  return text + (decisions.cuts.empty() ? "]}" : "\n   ]}");
}

}  // namespace plimsoll
