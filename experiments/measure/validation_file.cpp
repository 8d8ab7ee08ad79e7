#include "experiments/measure/validation_file.h"

#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "sim/io/text_file.h"
#include "sim/io/yaml_document.h"
#include "strategies/compose/spec.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

/// Strategies are understood here, so that a mistyped one is found before anything is measured.
std::vector<Pipeline> specs(const YamlCursor& value) {
  std::vector<Pipeline> list;
  for (const YamlCursor& element : value.elements()) {
    try {
      list.push_back(parse_pipeline(element.string(), "strategy"));
    } catch (const InputError& error) {
      element.complain(error.what());
    }
  }
  return list;
}

std::vector<std::string> networks(const YamlCursor& value) {
  std::vector<std::string> list;
  for (const YamlCursor& element : value.elements()) {
    try {
      named_network(element.string());
    } catch (const InputError& error) {
      element.complain(error.what());
    }
    list.push_back(element.string());
  }
  return list;
}

void check_validation_format(const YamlCursor& value) {
  constexpr std::string_view format = "plimsoll.validation.v1";
  if (value.string() != format) value.complain("expected '" + std::string(format) + "', " + value.found());
}

using ValidationField = Field<Validation, const YamlCursor&>;
constexpr ValidationField validation_fields[] = {
    {"format", Need::required, [](Validation&, const YamlCursor& v) { check_validation_format(v); }},
    {"name", Need::required, [](Validation& e, const YamlCursor& v) { e.name = v.string(); }},
    {"platform", Need::required, [](Validation& e, const YamlCursor& v) { e.platform = v.string(); }},
    {"rounds", Need::optional, [](Validation& e, const YamlCursor& v) { e.rounds = v.count(); }},
    {"between", Need::optional, [](Validation& e, const YamlCursor& v) { e.between = v.number(0, 1); }},
    {"optimizer", Need::optional, [](Validation& e, const YamlCursor& v) { e.optimizer = one_of<Optimizer>(v); }},
    {"networks", Need::required, [](Validation& e, const YamlCursor& v) { e.networks = networks(v); }},
    {"chain_strategies", Need::required, [](Validation& e, const YamlCursor& v) { e.chain_strategies = specs(v); }},
    {"graph_strategies", Need::required, [](Validation& e, const YamlCursor& v) { e.graph_strategies = specs(v); }},
};

}  // namespace

Validation read_validation(const std::filesystem::path& path) {
  YamlDocument document(read_text_file(path), path.string());
  Validation validation;
  read_fields(document.root(), validation_fields, validation);
  document.throw_if_any();
  const std::filesystem::path beside = path.parent_path() / validation.platform;
  std::error_code ignored;
  if (std::filesystem::exists(beside, ignored)) validation.platform = beside.lexically_normal();
  return validation;
}

}  // namespace plimsoll
