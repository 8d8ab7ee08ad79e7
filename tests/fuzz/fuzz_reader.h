#pragma once
// Bytes into a reader: it may refuse them, with InputError, and do nothing else.

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/io/input_error.h"

namespace plimsoll {

template <class Read>
int try_reading(const std::uint8_t* data, std::size_t size, Read read) {
  try {
    read(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const InputError& error) {
    if (std::string(error.what()).empty()) __builtin_trap();  // it must say something
  }
  return 0;
}

}  // namespace plimsoll
