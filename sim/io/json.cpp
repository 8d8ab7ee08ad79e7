#include "sim/io/json.h"

#include "sim/io/text_file.h"

namespace plimsoll {

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_text_file(path, json.dump(2) + "\n");
}

}  // namespace plimsoll
