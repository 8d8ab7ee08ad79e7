#include "experiments/fits/stored_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/study/model.h"
#include "sim/io/input_error.h"
#include "sim/io/reference_options.h"
#include "traces/safetensors.h"

namespace plimsoll {
namespace {

constexpr std::string_view hf_reference = "hf:";
constexpr std::string_view out_of_layers;  ///< of layers

/// One parameter, or what a file has of it.
struct Counted {
  std::string name, part;  ///< part: `layer3`, `decoder3`, or none
  std::int64_t numbers = 0;
  std::string file, shape;
  bool is_matched = false;
};

bool is_layer_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string> name_parts(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char each : name) {
    if (each == '.') {
      words.emplace_back();
    } else {
      words.back() += each;
    }
  }
  return words;
}

/// Tables, masks and counts that a model computes with and does not train.
bool is_buffer(const StoredTensor& tensor) {
  constexpr std::array endings{"position_ids", ".inv_freq", ".attn.bias", ".attn.masked_bias",
                               "e_score_correction_bias"};
  const std::string_view name = tensor.name;
  const bool is_float = tensor.dtype.starts_with("F") || tensor.dtype.starts_with("BF");
  return !is_float || std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

/// Stored tensors as the model has them: those of all experts of a layer are one where up and gate are, and one down.
std::vector<Counted> counted_tensors(const std::vector<StoredTensor>& tensors, bool has_decoder) {
  std::vector<Counted> made;
  std::map<std::string, std::size_t> of_experts;
  for (const StoredTensor& tensor : tensors) {
    if (is_buffer(tensor)) continue;
    const std::vector<std::string> words = name_parts(tensor.name);
    const auto layer = std::ranges::find_if(words, is_layer_number);
    const bool is_decoder = has_decoder && std::ranges::find(words, "decoder") != words.end();
    const std::string part =
        layer == words.end() ? std::string(out_of_layers) : (is_decoder ? "decoder" : "layer") + *layer;
    Counted each{tensor.name, part, tensor.numbers, tensor.file, fmt::format("[{}]", fmt::join(tensor.shape, ", "))};
    const auto experts = std::ranges::find(words, "experts");
    if (experts != words.end() && experts + 1 != words.end() && is_layer_number(*(experts + 1))) {
      const bool is_down =
          tensor.name.find("down") != std::string::npos || tensor.name.find(".w2.") != std::string::npos;
      const auto [found, is_new] = of_experts.emplace(part + (is_down ? " down" : " up"), made.size());
      if (!is_new) {
        made[found->second].numbers += tensor.numbers;
        made[found->second].shape = "all experts'";
        continue;
      }
    }
    made.push_back(std::move(each));
  }
  return made;
}

std::vector<Counted> parameters_by_part(const Graph& graph) {
  std::vector<Counted> made;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    const std::string first = name_parts(tensor.name).front();
    const bool is_in_layer = (first.starts_with("layer") && is_layer_number(first.substr(5))) ||
                             (first.starts_with("decoder") && is_layer_number(first.substr(7)));
    std::int64_t numbers = 1;
    for (const std::int64_t extent : tensor.shape) numbers *= extent;
    made.push_back({tensor.name, is_in_layer ? first : std::string(out_of_layers), numbers, "",
                    fmt::format("[{}]", fmt::join(tensor.shape, ", "))});
  }
  return made;
}

void match_numbers(std::vector<Counted>& stored, std::vector<Counted>& wanted, bool by_part) {
  std::map<std::pair<std::string, std::int64_t>, std::vector<Counted*>> free;
  const auto key = [&](const Counted& each) { return std::pair(by_part ? each.part : "", each.numbers); };
  for (Counted& each : wanted) {
    if (!each.is_matched) free[key(each)].push_back(&each);
  }
  for (Counted& each : stored) {
    if (each.is_matched) continue;
    std::vector<Counted*>& found = free[key(each)];
    if (found.empty()) continue;
    each.is_matched = found.back()->is_matched = true;
    found.pop_back();
  }
}

/// The first tensor of a layer that no parameter is like, or one outside where a parameter has no tensor.
void refuse_difference(const std::vector<Counted>& stored, const std::vector<Counted>& wanted, const std::string& file,
                       const std::string& config) {
  const auto missing = std::ranges::find(wanted, false, &Counted::is_matched);
  const bool is_missing = missing != wanted.end();
  const auto extra = std::ranges::find_if(stored, [&](const Counted& each) {
    return !each.is_matched && (each.part != out_of_layers || (is_missing && missing->part == out_of_layers));
  });
  if (extra != stored.end()) {
    const auto like =
        std::ranges::find_if(wanted, [&](const Counted& each) { return !each.is_matched && each.part == extra->part; });
    const std::string expected = like == wanted.end()
                                     ? fmt::format("no such parameter in {}", config)
                                     : fmt::format("{} of '{}' in {}", like->shape, like->name, config);
    throw InputError(
        located(extra->file, {}, extra->name, fmt::format("expected {}, found {}", expected, extra->shape)));
  }
  if (is_missing) {
    throw InputError(located(
        file, {}, "",
        fmt::format("expected a tensor with the {} numbers of '{}' in {}", missing->numbers, missing->name, config)));
  }
}

}  // namespace

std::optional<StoredTensors> stored_tensors_of(const std::string& reference) {
  if (!reference.starts_with(hf_reference)) return std::nullopt;
  std::string config = reference.substr(hf_reference.size(), reference.find(',') - hf_reference.size());
  if (config.starts_with("file=")) config.erase(0, 5);
  const std::filesystem::path folder = std::filesystem::path(config).parent_path();
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    const std::filesystem::path file = folder / name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const std::vector<StoredTensor> tensors = read_safetensors(file);
    std::string model = std::string(hf_reference) + config;
    for (const ReferenceNumber& each : model_numbers(model)) {
      if (each.name == "sequence") model = with_number(model, each, each.range.least);
    }
    std::vector<Counted> wanted = parameters_by_part(std::get<Graph>(load_model(model).model));
    const bool has_decoder =
        std::ranges::any_of(wanted, [](const Counted& each) { return each.part.starts_with("decoder"); });
    std::vector<Counted> stored = counted_tensors(tensors, has_decoder);
    for (const bool by_part : {true, false}) match_numbers(stored, wanted, by_part);
    refuse_difference(stored, wanted, file.string(), config);
    StoredTensors found{.file = file.string(), .tensors = tensors.size(), .bytes = {}, .dtypes = {}};
    std::set<std::string> dtypes;
    for (const StoredTensor& each : tensors) {
      found.bytes += each.bytes;
      dtypes.insert(each.dtype);
    }
    found.dtypes = fmt::format("{}", fmt::join(dtypes, ", "));
    return found;
  }
  return std::nullopt;
}

}  // namespace plimsoll
