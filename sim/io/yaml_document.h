#pragma once
// A YAML file as a tree in which every value knows file:line:column and its path of keys. Numbers carry units.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.h"
#include "sim/io/input_error.h"

namespace plimsoll {

struct YamlTree;  // the nodes and the complaints about them

/// Where a value stands, for complaints that outlive its document (`located`).
struct YamlPlace {
  std::string file;
  Position at;
  std::string path;
};

/// One value; cheap to copy, valid as long as its document. An accessor whose type does not fit complains and returns
/// nothing (zero, an empty text).
class YamlCursor {
 public:
  std::string string() const;
  bool boolean() const;
  double number(double least, double most) const;  ///< without a unit
  std::uint32_t count() const;                     ///< a whole number from 1 to 1,000,000
  std::uint32_t index() const;                     ///< a whole number from 0 to 1,000,000
  Bytes bytes() const;                             ///< `80 GB`
  std::optional<Bytes> capacity() const;           ///< `80 GB` or `unlimited`
  Seconds seconds() const;                         ///< `5 us`
  BytesPerSecond bandwidth() const;                ///< `25 GB/s` or `unlimited`
  FlopsPerSecond flops_rate() const;               ///< `989 TFLOPS`

  bool is_scalar() const;
  bool is_word() const { return is_scalar(); }
  bool is_object() const;
  bool is_list() const;
  std::vector<YamlCursor> elements() const;  ///< of a list

  /// each(std::string_view key, YamlCursor value); false where this is no object.
  template <class Each>
  bool object(Each&& each) const {
    if (!is_object_or_complain()) return false;
    for (const YamlCursor& value : fields()) each(value.key_, value);
    return true;
  }

  void complain(std::string_view what) const;
  YamlPlace place() const;  ///< for what is wrong that shows only later
  void complain_unknown_key(const std::vector<std::string_view>& known) const;
  void complain_missing_key(std::string_view key) const;
  std::string found() const;  ///< `found '17'` for messages

 private:
  friend class YamlDocument;
  YamlCursor(YamlTree* tree, std::uint32_t node, std::string path, std::string key, Position key_at)
      : tree_(tree), node_(node), path_(std::move(path)), key_(std::move(key)), key_at_(key_at) {}

  Position place_in_bytes() const;
  bool is_object_or_complain() const;
  std::vector<YamlCursor> fields() const;
  std::string scalar(std::string_view expected) const;
  std::uint32_t whole(std::int64_t least, std::int64_t most) const;
  template <class Parse>
  auto quantity(Parse parse, std::string_view expected) const;

  YamlTree* tree_;
  std::uint32_t node_;
  std::string path_, key_;
  Position key_at_;
};

class YamlDocument {
 public:
  /// Throws where the text is no YAML, repeats keys, or expands to something absurd.
  YamlDocument(const std::string& text, std::string file);
  ~YamlDocument();
  YamlDocument(const YamlDocument&) = delete;
  YamlDocument& operator=(const YamlDocument&) = delete;

  YamlCursor root();
  void throw_if_any() const;

 private:
  std::unique_ptr<YamlTree> tree_;
};

}  // namespace plimsoll
