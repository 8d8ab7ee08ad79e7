#include "sim/io/printable.h"

#include <cstdint>
#include <ostream>

namespace plimsoll {
namespace {

struct Character {
  std::size_t bytes = 0;  ///< 0: not UTF-8
  std::uint32_t code = 0;
};

/// The length that a first byte announces; 0: it is none.
std::size_t announced(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

Character first_character(std::string_view text) {
  const std::size_t length = announced(static_cast<unsigned char>(text[0]));
  if (length == 0 || length > text.size()) return {};
  constexpr std::uint32_t payload[] = {0x7F, 0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = static_cast<unsigned char>(text[0]) & payload[length];
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte & 0x3FU);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < least[length] || is_surrogate || code > 0x10FFFF) return {};
  return {length, code};
}

bool commands_a_terminal(std::uint32_t code) {
  if (code < 0x20) return code != '\n' && code != '\t';
  const bool is_control = code >= 0x7F && code <= 0x9F;
  const bool turns_direction =
      (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0x200E || code == 0x200F;
  return is_control || turns_direction;
}

void append_escaped(std::string& text, std::string_view bytes) {
  constexpr char digits[] = "0123456789ABCDEF";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    (text += "\\x") += digits[byte >> 4U];
    text += digits[byte & 0xFU];
  }
}

template <class Refuse>
std::string escaped(std::string_view text, Refuse refuse) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(1, next.bytes);
    if (next.bytes == 0 || refuse(next.code)) {
      append_escaped(shown, text.substr(0, bytes));
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

/// How many bytes at the end begin a character that is not whole yet.
std::size_t begun(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    return announced(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string as_utf8(std::string_view text) {
  return escaped(text, [](std::uint32_t) { return false; });
}

std::string printable(std::string_view text) {
  return escaped(text, commands_a_terminal);
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::string_view kept = text.substr(0, most);
  return std::string(kept.substr(0, kept.size() - begun(kept))) + "...";
}

PrintableOutput::PrintableOutput(std::ostream& stream) : stream_(stream), below_(stream.rdbuf(this)) {}

PrintableOutput::~PrintableOutput() {
  pass_on(true);
  stream_.rdbuf(below_);
}

bool PrintableOutput::pass_on(bool whole) {
  const std::size_t kept = whole ? 0 : begun(waiting_);
  const std::string shown = printable(std::string_view(waiting_).substr(0, waiting_.size() - kept));
  waiting_.erase(0, waiting_.size() - kept);
  const auto size = static_cast<std::streamsize>(shown.size());
  return below_->sputn(shown.data(), size) == size;
}

PrintableOutput::int_type PrintableOutput::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  waiting_ += traits_type::to_char_type(c);
  return pass_on(false) ? c : traits_type::eof();
}

std::streamsize PrintableOutput::xsputn(const char* text, std::streamsize size) {
  waiting_.append(text, static_cast<std::size_t>(size));
  return pass_on(false) ? size : 0;
}

int PrintableOutput::sync() {
  return below_->pubsync();
}

}  // namespace plimsoll
