#pragma once
// Execution traces of Chakra (MLCommons): what one rank does. Source: mlcommons/chakra,
// schema/protobuf/et_def.proto (package ChakraProtoMsg), files of a varint length and a message each, or JSON.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plimsoll {

enum class ChakraType : std::uint8_t { invalid, metadata, load, store, compute, send, receive, collective };

/// A number of any of the schema's types, a text, or texts.
struct ChakraAttribute {
  double number = 0;
  std::string text;
  std::vector<std::string> texts;
};

using ChakraAttributes = std::map<std::string, ChakraAttribute, std::less<>>;

struct ReadChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::invalid;
  std::vector<std::uint64_t> data;  ///< ids of the nodes that it needs; those of ctrl_deps only order nodes
  std::uint64_t microseconds = 0;
  ChakraAttributes attributes;
  std::string place;  ///< in the file, for messages: `byte 812`, `workload_graph[3]`
};

struct ReadChakraTrace {
  std::string version;
  ChakraAttributes attributes;
  std::vector<ReadChakraNode> nodes;
};

/// Throws InputError where the file is none.
ReadChakraTrace parse_chakra_trace(std::string text, const std::string& file_name);

}  // namespace plimsoll
