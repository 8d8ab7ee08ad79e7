#include "traces/models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// The top level of the file. What is asked for and is not as it should be is complained about at its place.
class ConfigFile {
 public:
  ConfigFile(std::string text, std::string file_name) : document_(std::move(text), std::move(file_name)) {
    document_.read([&](JsonCursor root) {
      root.object([&](std::string_view key, JsonCursor value) {
        if (value.is_word()) {
          words_.emplace(key, value.string());
        } else if (key == "id2label" && value.is_object()) {
          labels_ = 0;
          value.object([&](std::string_view, JsonCursor) { ++labels_; });
        } else if (key == rope && value.is_object()) {
          value.object([&](std::string_view of_rope, JsonCursor part) { rope_.emplace(of_rope, part.compact()); });
        } else {
          others_.emplace(key, value.compact());
        }
      });
    });
  }

  std::string word(const std::string& key, const std::string& otherwise) const {
    const auto found = words_.find(key);
    return found == words_.end() ? otherwise : found->second;
  }
  bool has(const std::string& key) const {
    const auto found = others_.find(key);
    return words_.contains(key) || (found != others_.end() && found->second != "null");
  }
  bool is_null(const std::string& key) const {
    const auto found = others_.find(key);
    return found != others_.end() && found->second == "null";
  }
  /// As written, a word without quotes; empty: it has none.
  std::string text(const std::string& key) const {
    const auto found = others_.find(key);
    return found == others_.end() ? word(key, "") : found->second;
  }
  std::int64_t whole(const std::string& key, std::optional<std::int64_t> otherwise = {}) {
    if (!has(key)) {
      if (otherwise) return *otherwise;
      complain("", fmt::format("missing key '{}'", key));
      return 0;
    }
    const Parsed<std::int64_t> parsed = parse_integer(words_.contains(key) ? "" : text(key));
    if (parsed.fine() && parsed.value >= 0) return parsed.value;
    complain(key, fmt::format("expected a whole number, found {}", text(key)));
    return 0;
  }
  bool is(const std::string& key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (text(key) != "true" && text(key) != "false")
      complain(key, fmt::format("expected true or false, found {}", text(key)));
    return text(key) == "true";
  }
  /// So much of `whole`, as a share that stands in the file or, from transformers 5 on, in its rope_parameters.
  std::int64_t share_of(std::int64_t whole, const std::string& key, double otherwise) {
    const auto later = rope_.find(key);
    if (!has(key) && later == rope_.end()) return static_cast<std::int64_t>(otherwise * static_cast<double>(whole));
    const std::string found = has(key) ? text(key) : later->second;
    const Parsed<double> parsed = parse_number(found);
    if (parsed.fine() && parsed.value > 0 && parsed.value <= 1) {
      return static_cast<std::int64_t>(parsed.value * static_cast<double>(whole));
    }
    complain(has(key) ? key : fmt::format("{}.{}", rope, key),
             fmt::format("expected a share up to 1, found {}", found));
    return 0;
  }
  bool is_positive(const std::string& key, double otherwise) {
    if (!has(key)) return otherwise > 0;
    const std::string found = text(key);
    return found.find_first_not_of("0.e+-") != std::string::npos;
  }
  /// Complains where a setting is given that is none of these.
  void only(const std::string& key, const std::vector<std::string>& texts, std::string_view of) {
    if (!has(key)) return;
    for (const std::string& each : texts) {
      if (text(key) == each) return;
    }
    complain(key,
             fmt::format("expected {}, found {}: no formula has another {}", fmt::join(texts, " or "), text(key), of));
  }
  /// Of a list of two words: how many there are from one `last` to the next, the first of which begin with `first`; 0:
  /// `first` alone. Complains where the words do not repeat so.
  std::int64_t repeated(const std::string& key, std::string_view first, std::string_view last) {
    const std::string found = text(key);
    std::vector<bool> is_last;
    for (std::size_t at = found.find('"'); at != std::string::npos; at = found.find('"', at + 1)) {
      const std::size_t end = found.find('"', at + 1);
      const std::string_view word = std::string_view(found).substr(at + 1, end - at - 1);
      if (word != first && word != last) complain(key, fmt::format("expected {} or {}, found {}", first, last, word));
      is_last.push_back(word == last);
      at = end;
    }
    const std::size_t each = static_cast<std::size_t>(std::ranges::find(is_last, true) - is_last.begin()) + 1;
    if (each > is_last.size()) return 0;
    for (std::size_t layer = 0; layer < is_last.size(); ++layer) {
      if (is_last[layer] == ((layer + 1) % each == 0)) continue;
      complain(key, fmt::format("layer {}: expected {}: each {}th alone is {}", layer, is_last[layer] ? first : last,
                                each, last));
      break;
    }
    return static_cast<std::int64_t>(each);
  }
  /// How many classes the model tells apart; transformers writes those of two nowhere.
  std::uint32_t labels() const { return labels_; }
  void complain(std::string_view key, const std::string& what) { document_.complain(key, what); }
  void throw_if_any() const { document_.throw_if_any(); }

 private:
  JsonDocument document_;
  std::uint32_t labels_ = 2;
  static constexpr std::string_view rope = "rope_parameters";
  std::map<std::string, std::string, std::less<>> words_, others_, rope_;
};

/// `llama:layers=32,width=4096`: what is asked for first is complained about first.
class Sizes {
 public:
  explicit Sizes(std::string formula) : text_(std::move(formula)) {}

  template <class Value>
  Sizes& with(std::string_view option, const Value& value) {
    text_ += fmt::format("{}{}={}", text_.find(':') == std::string::npos ? ":" : ",", option, value);
    return *this;
  }
  Sizes& with(std::string_view option, bool is) { return with(option, std::string_view(is ? "yes" : "no")); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// What decoders like Llama's have in common.
Sizes decoder(ConfigFile& file, const std::vector<std::string>& activations = {"silu"}, bool is_tied = false) {
  file.only("hidden_act", activations, "activation");
  file.only("attention_bias", {"false"}, "bias");
  file.only("mlp_bias", {"false"}, "bias");
  Sizes sizes("llama");
  sizes.with("layers", file.whole("num_hidden_layers")).with("width", file.whole("hidden_size"));
  const std::int64_t heads = file.whole("num_attention_heads");
  sizes.with("heads", heads).with("inner", file.whole("intermediate_size"));
  if (!file.has("kv_lora_rank")) sizes.with("kv_heads", file.whole("num_key_value_heads", heads));
  return sizes.with("vocabulary", file.whole("vocab_size")).with("tied", file.is("tie_word_embeddings", is_tied));
}

Sizes llama(ConfigFile& file) {
  Sizes sizes = decoder(file);
  if (file.has("head_dim")) sizes.with("head_size", file.whole("head_dim"));
  return sizes;
}

/// GELU by its error function keeps and moves what that by tanh does; Gemma's first files name it.
Sizes gemma_decoder(ConfigFile& file) {
  const std::vector<std::string> gelus{"gelu_pytorch_tanh", "gelu"};
  Sizes sizes = decoder(file, gelus, true);
  file.only("hidden_activation", gelus, "activation");
  file.only("use_bidirectional_attention", {"false"}, "direction");
  return sizes.with("head_size", file.whole("head_dim", 256)).with("norm", "gemma").with("act", "gelu");
}

/// In layers' types those with a window come first, so that the first without one says how many there are to each;
/// `pattern` where a file says nothing.
Sizes later_gemma(ConfigFile& file, std::int64_t pattern) {
  Sizes sizes = gemma_decoder(file).with("post_norms", true);
  const std::int64_t full = file.has("layer_types")
                                ? file.repeated("layer_types", "sliding_attention", "full_attention")
                                : file.whole("sliding_window_pattern", pattern);
  if (full != 1) sizes.with("window", file.whole("sliding_window", 4096));
  if (full > 1) sizes.with("full_every", full);
  return sizes;
}

/// The cap of scores is fused attention's, which keeps no more for it; that of logits is there unless the file says
/// null.
Sizes gemma2(ConfigFile& file) {
  const bool has_cap = !file.is_null("final_logit_softcapping");
  Sizes sizes = later_gemma(file, 2);
  return has_cap ? sizes.with("logit_cap", true) : sizes;
}

Sizes gemma3_text(ConfigFile& file) {
  file.only("attn_logit_softcapping", {"null"}, "cap of scores");
  file.only("final_logit_softcapping", {"null"}, "cap of logits");
  return later_gemma(file, 6).with("qk_norm", true);
}

/// Positions turn a part of a head's numbers in Phi-4 mini, which keeps the same values.
Sizes phi3(ConfigFile& file) {
  for (const char* each : {"resid_pdrop", "embd_pdrop", "attention_dropout"}) file.only(each, {"0.0", "0"}, "dropout");
  Sizes sizes = llama(file).with("joined", true);
  if (file.has("sliding_window")) sizes.with("window", file.whole("sliding_window"));
  return sizes;
}

Sizes mistral(ConfigFile& file) {
  Sizes sizes = llama(file);
  if (file.has("sliding_window")) sizes.with("window", file.whole("sliding_window"));
  return sizes;
}

Sizes mixtral(ConfigFile& file) {
  return mistral(file)
      .with("experts", file.whole("num_local_experts"))
      .with("top_k", file.whole("num_experts_per_tok"));
}

Sizes qwen2(ConfigFile& file) {
  file.only("use_sliding_window", {"false"}, "window");
  return decoder(file).with("bias", true);
}

Sizes qwen3(ConfigFile& file) {
  file.only("use_sliding_window", {"false"}, "window");
  return decoder(file).with("qk_norm", true).with("head_size", file.whole("head_dim", 128));
}

Sizes qwen3_moe(ConfigFile& file) {
  file.only("decoder_sparse_step", {"1"}, "step of layers with experts");
  file.only("mlp_only_layers", {"[]"}, "choice of layers without experts");
  return qwen3(file)
      .with("experts", file.whole(file.has("num_experts") ? "num_experts" : "num_local_experts"))
      .with("top_k", file.whole("num_experts_per_tok"))
      .with("expert_inner", file.whole("moe_intermediate_size"));
}

/// Layers have queries', keys' and values' biases; what all tokens pass is as wide as some experts together.
Sizes qwen2_moe(ConfigFile& file) {
  file.only("use_sliding_window", {"false"}, "window");
  file.only("decoder_sparse_step", {"1"}, "step of layers with experts");
  file.only("mlp_only_layers", {"[]"}, "choice of layers without experts");
  file.only("qkv_bias", {"true"}, "bias");
  const std::int64_t inner = file.whole("moe_intermediate_size"),
                     shared = file.whole("shared_expert_intermediate_size");
  if (inner > 0 && shared % inner != 0) {
    file.complain("shared_expert_intermediate_size",
                  fmt::format("expected a multiple of moe_intermediate_size {}, found {}", inner, shared));
  }
  const bool sums_up = file.is("norm_topk_prob", false);
  return decoder(file)
      .with("bias", true)
      .with("experts", file.whole("num_experts"))
      .with("top_k", file.whole("num_experts_per_tok"))
      .with("expert_inner", inner)
      .with("shared", shared / std::max<std::int64_t>(inner, 1))
      .with("shared_gate", true)
      .with("router", std::string_view(sums_up ? "softmax" : "plain_softmax"));
}

Sizes deepseek(ConfigFile& file) {
  file.only("moe_layer_freq", {"1"}, "step of layers with experts");
  Sizes sizes = decoder(file);
  sizes.with("kv_rank", file.whole("kv_lora_rank"));
  if (file.has("q_lora_rank")) sizes.with("q_rank", file.whole("q_lora_rank"));
  return sizes.with("head_size", file.whole("qk_nope_head_dim"))
      .with("rope_size", file.whole("qk_rope_head_dim"))
      .with("value_size", file.whole("v_head_dim"))
      .with("experts", file.whole("n_routed_experts"))
      .with("top_k", file.whole("num_experts_per_tok"))
      .with("expert_inner", file.whole("moe_intermediate_size"))
      .with("shared", file.whole("n_shared_experts"))
      .with("dense_layers", file.whole("first_k_dense_replace"));
}

Sizes deepseek_v3(ConfigFile& file) {
  return deepseek(file).with("router", "sigmoid");
}

constexpr double usual_dropout = 0.1;

Sizes gpt2(ConfigFile& file) {
  const std::int64_t width = file.whole("n_embd");
  file.only("activation_function", {"gelu_new"}, "activation");
  file.only("n_inner", {std::to_string(4 * width)}, "inner width");
  file.only("tie_word_embeddings", {"true"}, "head");
  return Sizes("gpt2")
      .with("layers", file.whole("n_layer"))
      .with("width", width)
      .with("heads", file.whole("n_head"))
      .with("vocabulary", file.whole("vocab_size"))
      .with("positions", file.whole("n_positions"))
      .with("dropout", file.is_positive("resid_pdrop", usual_dropout) ||
                           file.is_positive("embd_pdrop", usual_dropout) ||
                           file.is_positive("attn_pdrop", usual_dropout));
}

/// What encoders and OPT have in common.
Sizes plain_layers(ConfigFile& file, const char* formula, const char* inner) {
  return Sizes(formula)
      .with("layers", file.whole("num_hidden_layers"))
      .with("width", file.whole("hidden_size"))
      .with("heads", file.whole("num_attention_heads"))
      .with("inner", file.whole(inner));
}

Sizes opt(ConfigFile& file) {
  Sizes sizes = plain_layers(file, "opt", "ffn_dim");
  file.only("word_embed_proj_dim", {file.text("hidden_size")}, "width of embeddings");
  file.only("do_layer_norm_before", {"true"}, "order of norms");
  file.only("activation_function", {"relu"}, "activation");
  file.only("tie_word_embeddings", {"true"}, "head");
  return sizes.with("vocabulary", file.whole("vocab_size"))
      .with("positions", file.whole("max_position_embeddings"))
      .with("dropout", file.is_positive("dropout", usual_dropout));
}

/// Positions turn a part of a head's numbers; dropout is that of blocks' results.
Sizes phi(ConfigFile& file) {
  Sizes sizes = plain_layers(file, "phi", "intermediate_size");
  const std::int64_t heads = file.whole("num_attention_heads"), width = file.whole("hidden_size");
  file.only("num_key_value_heads", {std::to_string(heads)}, "number of heads");
  file.only("hidden_act", {"gelu_new"}, "activation");
  file.only("qk_layernorm", {"false"}, "norm of heads");
  file.only("tie_word_embeddings", {"false"}, "head");
  for (const char* each : {"embd_pdrop", "attention_dropout"}) file.only(each, {"0.0", "0"}, "dropout");
  const std::int64_t head_size = width / std::max<std::int64_t>(heads, 1);
  return sizes.with("rotary", file.share_of(head_size, "partial_rotary_factor", 0.5))
      .with("vocabulary", file.whole("vocab_size"))
      .with("dropout", file.is_positive("resid_pdrop", 0));
}

/// A head of words, or of classes where the file's architecture is a classifier.
Sizes with_head(ConfigFile& file, Sizes sizes) {
  const bool classifies = file.text("architectures").find("Classification") != std::string::npos;
  if (!classifies) return sizes.with("head", "words");
  return sizes.with("head", "classes").with("classes", file.labels());
}

Sizes bert_of(ConfigFile& file, const char* segments) {
  Sizes sizes = plain_layers(file, "bert", "intermediate_size");
  file.only("hidden_act", {"gelu"}, "activation");
  file.only("type_vocab_size", {segments}, "number of segments");
  return sizes.with("vocabulary", file.whole("vocab_size"))
      .with("positions", file.whole("max_position_embeddings"))
      .with("dropout", file.is_positive("hidden_dropout_prob", usual_dropout) ||
                           file.is_positive("attention_probs_dropout_prob", usual_dropout));
}

Sizes bert(ConfigFile& file) {
  return with_head(file, bert_of(file, "2"));
}

Sizes roberta(ConfigFile& file) {
  if (!file.has("type_vocab_size")) file.complain("", "missing key 'type_vocab_size'");
  return with_head(file, bert_of(file, "1").with("variant", "roberta"));
}

Sizes distilbert(ConfigFile& file) {
  file.only("activation", {"gelu"}, "activation");
  file.only("sinusoidal_pos_embds", {"false"}, "kind of positions");
  return with_head(file, Sizes("bert")
                             .with("layers", file.whole("n_layers"))
                             .with("width", file.whole("dim"))
                             .with("heads", file.whole("n_heads"))
                             .with("inner", file.whole("hidden_dim"))
                             .with("vocabulary", file.whole("vocab_size"))
                             .with("positions", file.whole("max_position_embeddings"))
                             .with("dropout", file.is_positive("dropout", usual_dropout) ||
                                                  file.is_positive("attention_dropout", usual_dropout))
                             .with("variant", "distilbert"));
}

Sizes vit(ConfigFile& file) {
  file.only("hidden_act", {"gelu"}, "activation");
  file.only("qkv_bias", {"true"}, "bias");
  return plain_layers(file, "vit", "intermediate_size")
      .with("size", file.whole("image_size"))
      .with("patch", file.whole("patch_size"))
      .with("channels", file.whole("num_channels"))
      .with("classes", file.labels());
}

/// Heads and inner numbers of the decoder must be those of the encoder.
Sizes whisper(ConfigFile& file) {
  file.only("activation_function", {"gelu"}, "activation");
  file.only("tie_word_embeddings", {"true"}, "head");
  const std::int64_t heads = file.whole("encoder_attention_heads"), inner = file.whole("encoder_ffn_dim");
  file.only("decoder_attention_heads", {std::to_string(heads)}, "number of heads");
  file.only("decoder_ffn_dim", {std::to_string(inner)}, "inner width");
  for (const char* each :
       {"dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"}) {
    file.only(each, {"0.0", "0"}, "dropout");
  }
  return Sizes("whisper")
      .with("layers", file.whole("encoder_layers"))
      .with("decoder", file.whole("decoder_layers"))
      .with("width", file.whole("d_model"))
      .with("heads", heads)
      .with("inner", inner)
      .with("vocabulary", file.whole("vocab_size"))
      .with("source", file.whole("max_source_positions"))
      .with("positions", file.whole("max_target_positions"))
      .with("mels", file.whole("num_mel_bins"));
}

Sizes t5(ConfigFile& file) {
  file.only("feed_forward_proj", {"relu", "gated-gelu"}, "activation");
  file.only("relative_attention_num_buckets", {"32"}, "number of positions");
  const std::int64_t layers = file.whole("num_layers");
  return Sizes("t5")
      .with("layers", layers)
      .with("decoder", file.whole("num_decoder_layers", layers))
      .with("width", file.whole("d_model"))
      .with("heads", file.whole("num_heads"))
      .with("head_size", file.whole("d_kv"))
      .with("inner", file.whole("d_ff"))
      .with("vocabulary", file.whole("vocab_size"))
      .with("act", file.text("feed_forward_proj") == "gated-gelu" ? "gated_gelu" : "relu")
      .with("tied", file.is("tie_word_embeddings", true))
      .with("dropout", file.is_positive("dropout_rate", usual_dropout));
}

struct ModelType {
  std::string_view name;
  Sizes (*sizes)(ConfigFile&);
};
constexpr ModelType model_types[] = {{"llama", llama},
                                     {"gemma", gemma_decoder},
                                     {"gemma2", gemma2},
                                     {"gemma3_text", gemma3_text},
                                     {"phi", phi},
                                     {"phi3", phi3},
                                     {"mistral", mistral},
                                     {"mixtral", mixtral},
                                     {"qwen2", qwen2},
                                     {"qwen2_moe", qwen2_moe},
                                     {"qwen3", qwen3},
                                     {"qwen3_moe", qwen3_moe},
                                     {"deepseek_v2", deepseek},
                                     {"deepseek_v3", deepseek_v3},
                                     {"gpt2", gpt2},
                                     {"opt", opt},
                                     {"bert", bert},
                                     {"roberta", roberta},
                                     {"distilbert", distilbert},
                                     {"vit", vit},
                                     {"whisper", whisper},
                                     {"t5", t5}};

/// Types of models that people have, and what no formula has of them.
struct WithoutFormula {
  std::string_view type, what;
};
constexpr WithoutFormula without_formula[] = {
    {"gemma3", "an encoder of pictures; its text_config alone has one, as gemma3_text"},
    {"umt5", "biases of relative positions in each layer"},
    {"bart", "norms behind blocks of an encoder and a decoder"}};

/// What formulas end in, by parts of the names of transformers' classes.
struct Head {
  std::string_view part;
  bool of_bert = false;  ///< of BERT and its variants alone
};
constexpr Head heads[] = {{"ForCausalLM"},
                          {"LMHeadModel"},
                          {"ForMaskedLM"},
                          {"ForConditionalGeneration"},
                          {"ForImageClassification"},
                          {"ForSequenceClassification", true}};

/// A class with another head, or without one, has other parameters and other values.
void refuse_other_heads(ConfigFile& file, std::string_view type) {
  const std::string named = file.text("architectures");
  if (named.empty() || named == "null" || named == "[]") return;
  const bool is_bert = type.find("bert") != std::string_view::npos;
  std::vector<std::string_view> known;
  for (const Head& head : heads) {
    if (head.of_bert && !is_bert) continue;
    if (named.find(head.part) != std::string::npos) return;
    known.push_back(head.part);
  }
  file.complain("architectures",
                fmt::format("no formula for the head of {}: expected a name with {}", named, alternatives(known)));
}

}  // namespace

std::string sizes_of_hf_config(std::string text, std::string file_name) {
  ConfigFile file(std::move(text), std::move(file_name));
  const std::string type = file.word("model_type", "");
  std::vector<std::string_view> known;
  for (const ModelType& each : model_types) {
    known.push_back(each.name);
    if (each.name != type) continue;
    refuse_other_heads(file, type);
    std::string sizes = each.sizes(file).text();
    file.throw_if_any();
    return sizes;
  }
  if (type.empty()) {
    file.complain("", "missing key 'model_type': a configuration of transformers has it");
  } else if (const auto* missing = std::ranges::find(without_formula, std::string_view(type), &WithoutFormula::type);
             missing != std::end(without_formula)) {
    file.complain("model_type", fmt::format("no formula for '{}': none has {}", type, missing->what));
  } else {
    file.complain("model_type", fmt::format("no formula for '{}': expected {}{}", type, alternatives(known),
                                            suggestion(type, std::span<const std::string_view>(known))));
  }
  file.throw_if_any();
  return "";
}

namespace {

/// Keys of files that hold what an option is, those of all types of models.
struct OptionKeys {
  std::string_view option;
  std::array<std::string_view, 5> keys;
};
constexpr OptionKeys option_keys[] = {
    {"heads", {"num_attention_heads", "n_head", "encoder_attention_heads", "num_heads", "n_heads"}},
    {"rotary", {"partial_rotary_factor"}},
    {"kv_heads", {"num_key_value_heads"}},
    {"top_k", {"num_experts_per_tok"}},
    {"patch", {"patch_size"}},
    {"sequence", {"max_position_embeddings", "n_positions", "max_target_positions"}}};

}  // namespace

void throw_of_hf_config(std::string_view refusal, std::string_view reference, std::string text, std::string file_name) {
  const std::size_t formula = refusal.find(": "), end = refusal.find(": ", formula + 2);
  if (formula == std::string_view::npos || end == std::string_view::npos) return;
  const std::string_view option = refusal.substr(formula + 2, end - formula - 2), what = refusal.substr(end + 2);
  if (reference.find(fmt::format(",{}=", option)) != std::string_view::npos) {
    throw InputError(located(reference, {}, option, what));
  }
  const auto* known = std::ranges::find(option_keys, option, &OptionKeys::option);
  if (known == std::end(option_keys)) return;
  ConfigFile file(std::move(text), std::move(file_name));
  for (const std::string_view key : known->keys) {
    if (!key.empty() && file.has(std::string(key))) file.complain(key, std::string(what));
  }
  file.throw_if_any();
}

}  // namespace plimsoll
