#pragma once
// tests/bad_input: one broken file a message, with the message beside it in a file of the same name that ends in
// `.expected`. Tests run in the root of the repository, so messages name the files as they are given here.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {

/// Files of a folder with this extension, in alphabetical order.
inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// A file as it is, compressed or not.
inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What reading says, or that it says nothing.
template <class Read>
std::string complaint_of(Read&& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no complaint";
}

/// The same of what cannot be written.
template <class Write>
std::string output_complaint_of(Write&& write) {
  try {
    write();
  } catch (const OutputError& error) {
    return error.what();
  }
  return "no complaint";
}

/// The message beside a broken file, without its last line break.
inline std::string expected_complaint(const std::filesystem::path& broken) {
  std::string text = read_text_file(std::filesystem::path(broken).replace_extension(".expected"));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace plimsoll
