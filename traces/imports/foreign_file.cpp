#include "traces/imports/foreign_file.h"

#include <fmt/format.h>

#include "traces/imports/pytorch/fx_text.h"

namespace plimsoll {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Of a pickle of Python: the byte that begins one, then the protocol.
bool is_pickle(std::string_view text) {
  return text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
}

/// Of ONNX: `ir_version`, field 1, a small number; then another field of a model, mostly the producer's name.
bool is_onnx(std::string_view text) {
  return text.size() > 2 && text[0] == 8 && text[1] > 0 && text[1] < 32 && (text[2] == 0x12 || text[2] == 0x3a);
}

/// Of Chakra: the first message behind its length (a number of one or two bytes), with a version or a first attribute.
bool is_chakra(std::string_view text) {
  if (text.size() < 5) return false;
  const bool is_long = (static_cast<unsigned char>(text[0]) & 128U) != 0;
  text.remove_prefix(is_long ? 2 : 1);
  if (text[0] == 0x12) return contains(text.substr(0, 64), "schema");
  const std::string_view version = text.substr(2, static_cast<unsigned char>(text[1]));
  return text[0] == 0x0a && !version.empty() && version.size() < 16 &&
         version.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string foreign_hint(std::string_view text, std::string_view file) {
  const std::string_view head = text.substr(0, 4096), first_line = text.substr(0, text.find('\n'));
  const auto by = [&](std::string_view what, std::string_view format) {
    return fmt::format("{}, no trace: plimsoll import {} {} -o TRACE", what, format, file);
  };
  if (is_chakra(text)) return by("an execution trace of Chakra", "chakra");
  if (is_onnx(text)) return by("an ONNX model", "onnx");
  if (is_pickle(text)) {
    return fmt::format(
        "a pickle, no trace: plimsoll import memory-snapshot {}, where it is one of "
        "torch.cuda.memory._snapshot()",
        file);
  }
  if (head.starts_with("PK\x03\x04")) return "a zip archive, such as torch.save writes, no trace: it has no ops";
  if (contains(head, "\"plimsoll.")) return "";
  if (contains(head, "\"traceEvents\"") || contains(head, "\"deviceProperties\"") ||
      (head.starts_with('[') && contains(head, "\"ph\""))) {
    return by("a timeline in Chrome's format, as PyTorch's profiler writes", "kineto");
  }
  if (contains(head, "[pytorch|profiler|execution_")) return by("an execution trace of PyTorch", "pytorch-et");
  if (contains(head, "\"workload_graph\"")) return by("an execution trace of Chakra", "chakra");
  if (first_line.starts_with("name,kind,inputs,")) return by("a list of operators", "fx");
  if (seems_fx_text(text.substr(0, 1 << 20))) return by("a graph that PyTorch has printed", "fx");
  if (first_line.starts_with("digraph") || first_line.starts_with("strict digraph")) return by("a graph in DOT", "dot");
  if (first_line.starts_with("# dag1")) return by("a graph of ParDNN's", "pardnn-dag");
  if (contains(first_line, "\"INSTRUCTION\"")) return by("a log of simrd's", "dtr-log");
  if (contains(first_line, "forward_compute_time=")) return by("a profile of PipeDream's", "pipedream");
  return "";
}

}  // namespace plimsoll
