// Source: the format as huggingface/safetensors' README states it: 8 bytes of the header's length, little-endian; the
// header, a JSON object; then the numbers, without holes.

#include "traces/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t most_header = 100'000'000;  // that the format allows

struct StoredType {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array stored_types{StoredType{"BOOL", 1},    StoredType{"U8", 1},      StoredType{"I8", 1},
                                  StoredType{"F8_E4M3", 1}, StoredType{"F8_E5M2", 1}, StoredType{"I16", 2},
                                  StoredType{"U16", 2},     StoredType{"F16", 2},     StoredType{"BF16", 2},
                                  StoredType{"I32", 4},     StoredType{"U32", 4},     StoredType{"F32", 4},
                                  StoredType{"I64", 8},     StoredType{"U64", 8},     StoredType{"F64", 8}};

struct Header {
  std::string text;
  std::int64_t data = 0;  ///< bytes behind it
};

Header header_of(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& what) { throw InputError(located(path.string(), {}, "", what)); };
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) refuse("cannot read: expected a file of safetensors");
  std::array<unsigned char, length_bytes> bytes{};
  file.read(reinterpret_cast<char*>(bytes.data()), length_bytes);
  if (!file) refuse(fmt::format("expected 8 bytes of the header's length, found {}", size));
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i > 0; --i) length = length << 8U | bytes[i - 1];
  if (length > most_header) refuse(fmt::format("header: expected at most {} bytes, found {}", most_header, length));
  if (length > size - length_bytes) {
    refuse(fmt::format("header: expected {} bytes, found {}: the file is cut short", length, size - length_bytes));
  }
  Header header{std::string(length, ' '), static_cast<std::int64_t>(size - length_bytes - length)};
  file.read(header.text.data(), static_cast<std::streamsize>(length));
  if (!file) refuse("cannot read the header");
  return header;
}

/// What a header says of one tensor.
struct DraftTensor {
  StoredTensor tensor;
  std::vector<std::int64_t> ends;  ///< offsets of its first byte and behind its last
};

DraftTensor drafted_tensor(std::string_view name, const JsonCursor& value) {
  DraftTensor draft;
  draft.tensor.name = name;
  std::vector<std::string_view> missing{"dtype", "shape", "data_offsets"};
  const bool is_object = value.object([&](std::string_view key, const JsonCursor& part) {
    std::erase(missing, key);
    if (key == "dtype") {
      draft.tensor.dtype = part.string();
    } else if (key == "shape") {
      part.array([&](const JsonCursor& extent) { draft.tensor.shape.push_back(extent.bytes().count); });
    } else if (key == "data_offsets") {
      part.array([&](const JsonCursor& end) { draft.ends.push_back(end.integer()); });
    } else {
      part.complain_unknown_key({"dtype", "shape", "data_offsets"});
    }
  });
  for (const std::string_view key : missing) {
    if (is_object) value.complain_missing_key(key);
  }
  return draft;
}

/// Unset: more than any file has.
std::optional<std::int64_t> product_of(const std::vector<std::int64_t>& shape) {
  std::int64_t numbers = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(numbers, extent, &numbers)) return std::nullopt;
  }
  return numbers;
}

/// Fills numbers and bytes; what is wrong with it, or nothing.
std::string wrong_with(DraftTensor& draft, std::int64_t data) {
  const auto* type = std::ranges::find(stored_types, std::string_view(draft.tensor.dtype), &StoredType::name);
  if (type == stored_types.end()) return fmt::format("dtype: expected such as BF16, found {}", draft.tensor.dtype);
  if (draft.ends.size() != 2) return fmt::format("data_offsets: expected two, found {}", draft.ends.size());
  const std::int64_t first = draft.ends[0], behind = draft.ends[1];
  if (first < 0 || behind < first || behind > data) {
    return fmt::format("data_offsets: expected two from 0 to {}, found {} and {}", data, first, behind);
  }
  const std::optional<std::int64_t> numbers = product_of(draft.tensor.shape);
  if (!numbers || *numbers > (behind - first) / type->bytes || *numbers * type->bytes != behind - first) {
    return fmt::format("expected the bytes of {} [{}], found {}", draft.tensor.dtype,
                       fmt::join(draft.tensor.shape, ", "), behind - first);
  }
  draft.tensor.numbers = *numbers;
  draft.tensor.bytes = Bytes{behind - first};
  return "";
}

std::vector<StoredTensor> tensors_of_file(const std::filesystem::path& path) {
  Header header = header_of(path);
  JsonDocument document(std::move(header.text), path.string());
  std::vector<DraftTensor> drafts;
  document.read([&](const JsonCursor& root) {
    root.object([&](std::string_view name, const JsonCursor& value) {
      if (name == "__metadata__") {
        value.compact();
      } else {
        drafts.push_back(drafted_tensor(name, value));
      }
    });
  });
  for (DraftTensor& draft : drafts) {
    if (const std::string wrong = wrong_with(draft, header.data); !wrong.empty()) {
      document.complain(draft.tensor.name, wrong);
      document.throw_if_any();
    }
  }
  std::ranges::stable_sort(drafts, {}, [](const DraftTensor& each) { return std::pair(each.ends[0], each.ends[1]); });
  std::int64_t end = 0;
  std::vector<StoredTensor> tensors;
  for (DraftTensor& draft : drafts) {
    if (draft.ends[0] != end) {
      document.complain(draft.tensor.name,
                        fmt::format("data_offsets: expected to begin at {}, found {}: tensors lie one behind another",
                                    end, draft.ends[0]));
      document.throw_if_any();
    }
    end = draft.ends[1];
    draft.tensor.file = path.string();
    tensors.push_back(std::move(draft.tensor));
  }
  if (end != header.data) {
    throw InputError(
        located(path.string(), {}, "", fmt::format("expected {} bytes of tensors, found {}", end, header.data)));
  }
  return tensors;
}

}  // namespace

std::vector<StoredTensor> read_safetensors(const std::filesystem::path& path) {
  if (path.extension() != ".json") return tensors_of_file(path);
  JsonDocument document(read_text_file(path), path.string());
  std::map<std::string, std::string> file_of;
  document.read([&](const JsonCursor& root) {
    bool has_map = false;
    root.object([&](std::string_view key, const JsonCursor& value) {
      if (key != "weight_map") {
        value.compact();
        return;
      }
      has_map = true;
      value.object([&](std::string_view name, const JsonCursor& file) { file_of[std::string(name)] = file.string(); });
    });
    if (!has_map) root.complain_missing_key("weight_map");
  });
  std::set<std::string> files;
  for (const auto& [name, file] : file_of) {
    if (file.empty() || file.find('/') != std::string::npos) {
      document.complain("weight_map", fmt::format("{}: expected a file in the index's folder, found '{}'", name, file));
      document.throw_if_any();
    }
    files.insert(file);
  }
  std::vector<StoredTensor> tensors;
  for (const std::string& file : files) {
    for (StoredTensor& each : tensors_of_file(path.parent_path() / file)) {
      const auto found = file_of.find(each.name);
      if (found == file_of.end() || found->second != file) {
        document.complain("weight_map", fmt::format("{} is in {}, which the index does not say", each.name, file));
        document.throw_if_any();
      }
      file_of.erase(found);
      tensors.push_back(std::move(each));
    }
  }
  if (!file_of.empty()) {
    const auto& [name, file] = *file_of.begin();
    document.complain("weight_map", fmt::format("{} is not in {}", name, file));
    document.throw_if_any();
  }
  return tensors;
}

}  // namespace plimsoll
