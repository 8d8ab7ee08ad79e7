// Checkpoints beside configuration files: their headers, and whether tensors are those of the configuration's model.

#include "experiments/fits/stored_tensors.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bad_input.h"
#include "tests/experiments/run_program.h"
#include "traces/safetensors.h"

namespace plimsoll {
namespace {

using StoredJson = nlohmann::ordered_json;

/// A folder of its own, gone with the test.
struct CheckpointFolder {
  TemporaryFolder folder;

  std::string operator/(const std::string& name) const { return (folder / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }
};

std::string behind_length(const std::string& header, std::size_t data) {
  std::string text;
  for (std::uint64_t i = 0, length = header.size(); i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xff);
  return text + header + std::string(data, '\0');
}

/// A file of these tensors, all numbers zero, as safetensors' README lays it out.
std::string checkpoint_file(const StoredJson& tensors) {
  StoredJson header{{"__metadata__", {{"format", "pt"}}}};
  std::size_t end = 0;
  for (const auto& [name, shape] : tensors.items()) {
    std::size_t bytes = 2;
    for (const auto& extent : shape) bytes *= extent.get<std::size_t>();
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  return behind_length(header.dump(), end);
}

/// Experts' tensors one by one, as files of the Hub have them: transformers 5 joins all of a layer.
StoredJson experts_apart(const StoredJson& tensors) {
  StoredJson made;
  for (const auto& [name, shape] : tensors.items()) {
    const std::size_t at = name.find(".experts.gate_up_proj"), down = name.find(".experts.down_proj");
    if (at == std::string::npos && down == std::string::npos) made[name] = shape;
    for (std::size_t e = 0; e < shape[0].get<std::size_t>() && (at != std::string::npos || down != std::string::npos);
         ++e) {
      const std::string before = name.substr(0, std::min(at, down)) + ".experts." + std::to_string(e);
      if (down != std::string::npos) {
        made[before + ".down_proj.weight"] = {shape[1], shape[2]};
      } else {
        for (const char* part : {".gate_proj.weight", ".up_proj.weight"}) {
          made[before + part] = {shape[1].get<std::int64_t>() / 2, shape[2]};
        }
      }
    }
  }
  return made;
}

StoredJson read_models(const std::string& path) {
  std::ifstream file(path);
  return StoredJson::parse(file);
}

/// Names, shapes and numbers of parameters of small models of 15 types, by transformers 5.15 (state_dict of what its
/// configuration makes, tied tensors once).
const StoredJson& stored_models() {
  static const StoredJson all = read_models("tests/experiments/fits/stored_tensors.json");
  return all;
}

std::int64_t extents_of(const StoredJson& shape) {
  std::int64_t numbers = 1;
  for (const auto& extent : shape) numbers *= extent.get<std::int64_t>();
  return numbers;
}

std::int64_t stored_numbers(const StoredJson& tensors) {
  std::int64_t all = 0;
  for (const auto& shape : tensors) all += extents_of(shape);
  return all;
}

}  // namespace

TEST_CASE("a checkpoint of each type of model has the tensors of its configuration", "[fits][stored]") {
  const CheckpointFolder folder;
  REQUIRE(stored_models().size() == 15);
  for (const StoredJson& model : stored_models()) {
    INFO(model["config"]["model_type"]);
    const std::string config = "hf:" + folder.write("config.json", model["config"].dump());
    for (const StoredJson& tensors : {model["tensors"], experts_apart(model["tensors"])}) {
      folder.write("model.safetensors", checkpoint_file(tensors));
      const std::optional<StoredTensors> found = stored_tensors_of(config + ",batch=2");
      REQUIRE(found.has_value());
      CHECK(found->tensors == tensors.size());
      CHECK(found->bytes == Bytes{2 * stored_numbers(tensors)});
      CHECK(found->dtypes == "BF16");
    }
  }
}

// Of each tensor in layers one number less or more, and each left out: the one is named.
TEST_CASE("the first tensor that differs from the configuration is named", "[fits][stored]") {
  const CheckpointFolder folder;
  for (const StoredJson& model : stored_models()) {
    const std::string config = "hf:" + folder.write("config.json", model["config"].dump()),
                      file = folder / "model.safetensors";
    std::size_t count = 0;
    for (const auto& [name, shape] : model["tensors"].items()) {
      const bool is_in_layer = name.find(".0.") != std::string::npos || name.find(".1.") != std::string::npos;
      const bool is_known = name.find("e_score_correction") == std::string::npos;
      if (!is_in_layer || !is_known || ++count % 5 != 1) continue;
      INFO(model["config"]["model_type"] << " " << name);
      StoredJson longer = model["tensors"], less = model["tensors"];
      longer[name][0] = shape[0].get<std::int64_t>() + 1;
      const auto as_many = [&](const StoredJson& other) { return extents_of(other) == extents_of(longer[name]); };
      if (std::ranges::count_if(longer, as_many) > 1) continue;  // either may be meant
      less.erase(name);
      folder.write("model.safetensors", checkpoint_file(longer));
      const std::string said = complaint_of([&] { stored_tensors_of(config); });
      CHECK(said.find(file + ": " + name + ": expected [") == 0);
      CHECK(said.find("' in " + (folder / "config.json") + ", found [" + std::to_string(longer[name][0].get<int>())) !=
            std::string::npos);
      folder.write("model.safetensors", checkpoint_file(less));
      CHECK(complaint_of([&] { stored_tensors_of(config); }).find(file + ": expected a tensor with the ") == 0);
    }
    CHECK(count > 10);
  }
}

TEST_CASE("a checkpoint of several files is read by its index", "[fits][stored]") {
  const CheckpointFolder folder;
  const StoredJson& model = stored_models()[0];
  folder.write("config.json", model["config"].dump());
  StoredJson halves[2], index{{"metadata", {{"total_size", 0}}}, {"weight_map", StoredJson::object()}};
  std::size_t count = 0;
  for (const auto& [name, shape] : model["tensors"].items()) {
    const std::size_t half = count++ % 2;
    halves[half][name] = shape;
    index["weight_map"][name] = "part" + std::to_string(half) + ".safetensors";
  }
  for (const std::size_t half : {0, 1}) {
    folder.write("part" + std::to_string(half) + ".safetensors", checkpoint_file(halves[half]));
  }
  const std::string path = folder.write("model.safetensors.index.json", index.dump()),
                    config = "hf:" + (folder / "config.json");
  CHECK(stored_tensors_of(config)->tensors == model["tensors"].size());
  const auto complaint = [&](const StoredJson& changed) {
    folder.write("model.safetensors.index.json", changed.dump());
    return complaint_of([&] { read_safetensors(path); });
  };
  StoredJson other = index;
  other["weight_map"]["lm_head.bias"] = "part0.safetensors";
  CHECK(complaint(other).find("weight_map: lm_head.bias is not in part0.safetensors") != std::string::npos);
  other = index;
  other["weight_map"].erase("lm_head.weight");
  CHECK(complaint(other).find("lm_head.weight is in part") != std::string::npos);
  other = index;
  other["weight_map"]["lm_head.weight"] = "../part0.safetensors";
  CHECK(complaint(other).find("expected a file in the index's folder, found '../part0.safetensors'") !=
        std::string::npos);
  CHECK(complaint({{"metadata", 1}}).find("missing key 'weight_map'") != std::string::npos);
}

TEST_CASE("a broken header of safetensors is refused in one line", "[fits][stored]") {
  const CheckpointFolder folder;
  const std::string path = folder / "model.safetensors";
  const auto complaint = [&](const std::string& bytes) {
    folder.write("model.safetensors", bytes);
    const std::string said = complaint_of([&] { read_safetensors(path); });
    CHECK(said.starts_with(path + ":"));
    CHECK(said.find('\n') == std::string::npos);
    return said.substr(path.size() + 1);
  };
  CHECK(complaint("abc") == " expected 8 bytes of the header's length, found 3");
  CHECK(complaint(std::string(8, '\xff')) == " header: expected at most 100000000 bytes, found 18446744073709551615");
  CHECK(complaint(behind_length(std::string(30, ' '), 0).substr(0, 20)) ==
        " header: expected 30 bytes, found 12: the file is cut short");
  const auto of = [&](const std::string& header, std::size_t data) { return complaint(behind_length(header, data)); };
  CHECK(of("what", 0).starts_with("1:1: not valid JSON: expected an object"));
  CHECK(of(R"({"a": 1})", 0).find("a: expected") != std::string::npos);
  CHECK(of(R"({"a": {"dtype": "F32", "shape": [1]}})", 4) == "1:7: a: missing key 'data_offsets'");
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& ends, std::size_t data) {
    return of(R"({"a": {"dtype": ")" + dtype + R"(", "shape": [)" + shape + R"(], "data_offsets": [)" + ends + "]}}",
              data);
  };
  CHECK(one("F33", "1", "0, 4", 4) == "1:7: a: dtype: expected such as BF16, found F33");
  CHECK(one("F32", "1", "0, 8", 4) == "1:7: a: data_offsets: expected two from 0 to 4, found 0 and 8");
  CHECK(one("F32", "1", "4, 0", 4) == "1:7: a: data_offsets: expected two from 0 to 4, found 4 and 0");
  CHECK(one("F32", "1", "0", 4) == "1:7: a: data_offsets: expected two, found 1");
  CHECK(one("F32", "2", "0, 4", 4) == "1:7: a: expected the bytes of F32 [2], found 4");
  CHECK(one("F32", "4294967296, 4294967296, 4294967296", "0, 4", 4).find("expected the bytes of F32 [") !=
        std::string::npos);
  CHECK(one("F32", "1", "0, 4", 8) == " expected 4 bytes of tensors, found 8");
  const std::string both = R"("dtype": "U8", "shape": [4], "data_offsets")";
  CHECK(of("{\"a\": {" + both + ": [0, 4]}, \"b\": {" + both + ": [2, 6]}}", 6) ==
        "1:67: b: data_offsets: expected to begin at 4, found 2: tensors lie one behind another");
  CHECK(of("{\"a\": {" + both + ": [0, 4]}, \"a\": {" + both + ": [4, 8]}}", 8).find("a") != std::string::npos);
}

TEST_CASE("fits says which checkpoint it has read, or what differs", "[fits][stored][program]") {
  const CheckpointFolder folder;
  const StoredJson& model = stored_models()[0];
  const std::string config = folder.write("config.json", model["config"].dump());
  const std::string words = "fits hf:" + config + " -p h200 --sequence 8";
  CHECK(plimsoll(words).out.find("stored tensors") == std::string::npos);
  folder.write("model.safetensors", checkpoint_file(model["tensors"]));
  const ProgramRun run = plimsoll(words);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find(std::to_string(model["tensors"].size()) + " of BF16 in " + (folder / "model.safetensors") +
                     ", as the configuration has them") != std::string::npos);
  const StoredJson json = StoredJson::parse(plimsoll(words + " --json").out);
  CHECK(json["stored_tensors"]["bytes"] == 2 * model["parameters"].get<std::int64_t>());
  CHECK(json["parameters"] == model["parameters"]);
  StoredJson other = model["tensors"];
  other["model.embed_tokens.weight"][0] = 41;
  folder.write("model.safetensors", checkpoint_file(other));
  const ProgramRun refused = plimsoll(words);
  CHECK(refused.exit_code == 2);
  CHECK(refused.out.empty());
  CHECK(refused.err == (folder / "model.safetensors") +
                           ": model.embed_tokens.weight: expected [40, 16] of "
                           "'embedding.table' in " +
                           config + ", found [41, 16]\n");
}

}  // namespace plimsoll
