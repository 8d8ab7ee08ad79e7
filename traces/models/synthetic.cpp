#include "traces/models/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/graph.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/io/reference_options.h"
#include "sim/io/text_file.h"
#include "traces/models/eager_modules.h"
#include "traces/models/encoder_graphs.h"
#include "traces/models/formula_chain.h"
#include "traces/models/gpt2_graph.h"
#include "traces/models/hf_config.h"
#include "traces/models/llama_graph.h"
#include "traces/models/named_models.h"

namespace plimsoll {
namespace {

/// A generator: its options and what makes the chain of them. The first option may be given without its name.
struct Generator {
  std::string_view name;
  std::vector<ReferenceOption> options;
  std::function<std::variant<Chain, Graph>()> make;
};

constexpr std::int64_t most_stages = 1'000'000;
constexpr std::string_view samples_option = "batch";
constexpr std::string_view layers_option = "layers";

/// A whole number from 1, which is 0 where it is not given; help shows `shown` then.
ReferenceOption unset_option(std::string_view name, std::uint32_t& value, std::int64_t most, std::string_view shown) {
  ReferenceOption option = whole_option(name, value, 1, most);
  option.shown = [&value, shown] { return value == 0 ? std::string(shown) : std::to_string(value); };
  return option;
}

/// The defaults that a call may change; generators refer to them.
struct Settings {
  UniformChain uniform;
  RandomChain random;
  TransformerChain transformer;
  LlamaGraph llama;
  Gpt2Graph gpt2;
  BertGraph bert;
  OptGraph opt;
  PhiGraph phi;
  VitGraph vit;
  WhisperGraph whisper;
  T5Graph t5;
};

std::vector<Generator> generators(Settings& s) {
  UniformChain& u = s.uniform;
  TransformerChain& t = s.transformer;
  LlamaGraph& l = s.llama;
  Gpt2Graph& g = s.gpt2;
  BertGraph& b = s.bert;
  OptGraph& o = s.opt;
  PhiGraph& p = s.phi;
  VitGraph& v = s.vit;
  WhisperGraph& w = s.whisper;
  T5Graph& f = s.t5;
  return {
      {"uniform",
       {whole_option("stages", u.stages, 1, most_stages),
        quantity_option("forward", u.forward, parse_seconds, format_seconds),
        quantity_option("backward", u.backward, parse_seconds, format_seconds),
        quantity_option("activation", u.activation, parse_bytes, format_bytes),
        quantity_option("inner", u.inner, parse_bytes, format_bytes),
        quantity_option("parameters", u.parameters, parse_bytes, format_bytes)},
       [&u] { return uniform_chain(u); }},
      {"random",
       {whole_option("stages", s.random.stages, 1, most_stages),
        quantity_option(
            "seed", s.random.seed,
            [](std::string_view text) {
              const Parsed<std::int64_t> parsed = parse_integer(text);
              return Parsed<std::uint64_t>{static_cast<std::uint64_t>(parsed.value), parsed.complaint};
            },
            [](std::uint64_t seed) { return std::to_string(seed); })},
       [&s] { return random_chain(s.random); }},
      {"transformer",
       {whole_option("layers", t.layers, 1, 100'000), whole_option("width", t.width, 1, 1 << 20),
        whole_option("heads", t.heads, 1, 1 << 16), whole_option("sequence", t.sequence, 1, 1 << 20),
        whole_option("batch", t.batch, 1, 1 << 20), whole_option("vocabulary", t.vocabulary, 1, 1 << 24),
        word_option("dtype", t.dtype, {TransformerChain::dtypes.begin(), TransformerChain::dtypes.end()}),
        whole_option("dtype_bytes", t.dtype_bytes, 2, 4),
        quantity_option("rate", t.rate, parse_flops_rate, format_flops_rate),
        word_option("view", t.view, {TransformerChain::views.begin(), TransformerChain::views.end()}),
        word_option("dropout", t.dropout, {TransformerChain::dropouts.begin(), TransformerChain::dropouts.end()}),
        word_option("ops", t.ops, {TransformerChain::op_lists.begin(), TransformerChain::op_lists.end()}),
        whole_option("decoder", t.decoder, 0, 100'000)},
       [&t]() -> std::variant<Chain, Graph> {
         if (t.view == 0) return transformer_chain(t);
         return transformer_graph(t);
       }},
      {"llama",
       {whole_option("layers", l.layers, 1, 100'000),
        whole_option("width", l.width, 1, 1 << 20),
        whole_option("heads", l.heads, 1, 1 << 16),
        whole_option("kv_heads", l.kv_heads, 1, 1 << 16),
        whole_option("inner", l.inner, 1, 1 << 22),
        whole_option("sequence", l.sequence, 1, 1 << 20),
        whole_option("batch", l.batch, 1, 1 << 20),
        whole_option("vocabulary", l.vocabulary, 1, 1 << 24),
        word_option("dtype", l.dtype, {LlamaGraph::dtypes.begin(), LlamaGraph::dtypes.end()}),
        word_option("logits", l.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        word_option("view", l.view, {LlamaGraph::views.begin(), LlamaGraph::views.end()}),
        unset_option("lora", l.lora, 1 << 16, "none"),
        word_option("base", l.base, {LlamaGraph::bases.begin(), LlamaGraph::bases.end()}),
        word_option("products", l.products, {LlamaGraph::product_types.begin(), LlamaGraph::product_types.end()}),
        unset_option("window", l.window, 1 << 20, "all"),
        unset_option("full_every", l.full_every, 100'000, "none"),
        word_option("norm", l.norm, {LlamaGraph::norms.begin(), LlamaGraph::norms.end()}),
        word_option("act", l.act, {LlamaGraph::acts.begin(), LlamaGraph::acts.end()}),
        word_option("post_norms", l.post_norms, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("logit_cap", l.logit_cap, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("joined", l.joined, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("experts", l.experts, 1 << 16, "none"),
        whole_option("top_k", l.top_k, 1, 1 << 16),
        unset_option("expert_inner", l.expert_inner, 1 << 22, "inner"),
        unset_option("shared", l.shared, 1 << 10, "none"),
        word_option("router", l.router, {LlamaGraph::routers.begin(), LlamaGraph::routers.end()}),
        word_option("shared_gate", l.shared_gate, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        whole_option("dense_layers", l.dense_layers, 0, 100'000),
        quantity_option("skew", l.skew, parse_number, [](double skew) { return fmt::format("{}", skew); }),
        whole_option("seed", l.seed, 1, 1 << 30),
        quantity_option("capacity", l.capacity, parse_number,
                        [](double times) { return times > 0 ? fmt::format("{}", times) : "none"; }),
        word_option("padded", l.padded, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("kv_rank", l.kv_rank, 1 << 20, "none"),
        unset_option("q_rank", l.q_rank, 1 << 20, "none"),
        unset_option("head_size", l.head_size, 1 << 16, "width/heads"),
        word_option("bias", l.bias, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("qk_norm", l.qk_norm, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("tied", l.tied, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        whole_option("rope_size", l.rope_size, 1, 1 << 16),
        whole_option("value_size", l.value_size, 1, 1 << 16),
        quantity_option("rate", l.rate, parse_flops_rate, format_flops_rate)},
       [&l]() -> std::variant<Chain, Graph> {
         if (l.view == 0) return llama_graph(l);
         return formula_chain(llama_graph(l), "llama");
       }},
      {"gpt2",
       {whole_option("layers", g.layers, 1, 100'000), whole_option("width", g.width, 1, 1 << 20),
        whole_option("heads", g.heads, 1, 1 << 16), whole_option("sequence", g.sequence, 1, 1 << 20),
        whole_option("batch", g.batch, 1, 1 << 20), whole_option("vocabulary", g.vocabulary, 1, 1 << 24),
        whole_option("positions", g.positions, 1, 1 << 20),
        word_option("dtype", g.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        word_option("logits", g.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        word_option("attention", g.attention, {EagerModules::attentions.begin(), EagerModules::attentions.end()}),
        word_option("dropout", g.dropout, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("loss", g.loss, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("lora", g.lora, 1 << 16, "none"),
        quantity_option("rate", g.rate, parse_flops_rate, format_flops_rate)},
       [&g]() -> std::variant<Chain, Graph> { return gpt2_graph(g); }},
      {"bert",
       {whole_option("layers", b.layers, 1, 100'000), whole_option("width", b.width, 1, 1 << 20),
        whole_option("heads", b.heads, 1, 1 << 16), unset_option("inner", b.inner, 1 << 22, "4 width"),
        whole_option("sequence", b.sequence, 1, 1 << 20), whole_option("batch", b.batch, 1, 1 << 20),
        whole_option("vocabulary", b.vocabulary, 1, 1 << 24), whole_option("positions", b.positions, 1, 1 << 20),
        word_option("variant", b.variant, {BertGraph::variants.begin(), BertGraph::variants.end()}),
        word_option("head", b.head, {BertGraph::heads_of_model.begin(), BertGraph::heads_of_model.end()}),
        whole_option("classes", b.classes, 1, 1 << 24),
        word_option("dtype", b.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        word_option("logits", b.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        word_option("attention", b.attention, {EagerModules::attentions.begin(), EagerModules::attentions.end()}),
        word_option("dropout", b.dropout, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("loss", b.loss, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("lora", b.lora, 1 << 16, "none"),
        quantity_option("rate", b.rate, parse_flops_rate, format_flops_rate)},
       [&b]() -> std::variant<Chain, Graph> { return bert_graph(b); }},
      {"opt",
       {whole_option("layers", o.layers, 1, 100'000), whole_option("width", o.width, 1, 1 << 20),
        whole_option("heads", o.heads, 1, 1 << 16), unset_option("inner", o.inner, 1 << 22, "4 width"),
        whole_option("sequence", o.sequence, 1, 1 << 20), whole_option("batch", o.batch, 1, 1 << 20),
        whole_option("vocabulary", o.vocabulary, 1, 1 << 24), whole_option("positions", o.positions, 1, 1 << 20),
        word_option("dtype", o.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        word_option("logits", o.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        word_option("attention", o.attention, {EagerModules::attentions.begin(), EagerModules::attentions.end()}),
        word_option("dropout", o.dropout, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("loss", o.loss, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("lora", o.lora, 1 << 16, "none"),
        quantity_option("rate", o.rate, parse_flops_rate, format_flops_rate)},
       [&o]() -> std::variant<Chain, Graph> { return opt_graph(o); }},
      {"phi",
       {whole_option("layers", p.layers, 1, 100'000), whole_option("width", p.width, 1, 1 << 20),
        whole_option("heads", p.heads, 1, 1 << 16), unset_option("inner", p.inner, 1 << 22, "4 width"),
        whole_option("sequence", p.sequence, 1, 1 << 20), whole_option("batch", p.batch, 1, 1 << 20),
        whole_option("vocabulary", p.vocabulary, 1, 1 << 24), unset_option("rotary", p.rotary, 1 << 16, "half a head"),
        word_option("dtype", p.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        word_option("logits", p.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        word_option("dropout", p.dropout, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        unset_option("lora", p.lora, 1 << 16, "none"),
        quantity_option("rate", p.rate, parse_flops_rate, format_flops_rate)},
       [&p]() -> std::variant<Chain, Graph> { return phi_graph(p); }},
      {"vit",
       {whole_option("layers", v.layers, 1, 100'000), whole_option("width", v.width, 1, 1 << 20),
        whole_option("heads", v.heads, 1, 1 << 16), unset_option("inner", v.inner, 1 << 22, "4 width"),
        whole_option("size", v.size, 1, 1 << 16), whole_option("patch", v.patch, 1, 1 << 12),
        whole_option("channels", v.channels, 1, 1 << 12), whole_option("batch", v.batch, 1, 1 << 20),
        whole_option("classes", v.classes, 1, 1 << 24),
        word_option("dtype", v.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        unset_option("lora", v.lora, 1 << 16, "none"),
        quantity_option("rate", v.rate, parse_flops_rate, format_flops_rate)},
       [&v]() -> std::variant<Chain, Graph> { return vit_graph(v); }},
      {"whisper",
       {whole_option("layers", w.layers, 1, 100'000), whole_option("decoder", w.decoder, 1, 100'000),
        whole_option("width", w.width, 1, 1 << 20), whole_option("heads", w.heads, 1, 1 << 16),
        unset_option("inner", w.inner, 1 << 22, "4 width"), whole_option("source", w.source, 1, 1 << 20),
        whole_option("sequence", w.sequence, 1, 1 << 20), whole_option("batch", w.batch, 1, 1 << 20),
        whole_option("vocabulary", w.vocabulary, 1, 1 << 24), whole_option("positions", w.positions, 1, 1 << 20),
        whole_option("mels", w.mels, 1, 1 << 12),
        word_option("dtype", w.dtype, {EagerModules::precisions.begin(), EagerModules::precisions.end()}),
        word_option("logits", w.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        unset_option("lora", w.lora, 1 << 16, "none"),
        quantity_option("rate", w.rate, parse_flops_rate, format_flops_rate)},
       [&w]() -> std::variant<Chain, Graph> { return whisper_graph(w); }},
      {"t5",
       {whole_option("layers", f.layers, 1, 100'000), whole_option("decoder", f.decoder, 1, 100'000),
        whole_option("width", f.width, 1, 1 << 20), whole_option("heads", f.heads, 1, 1 << 16),
        whole_option("head_size", f.head_size, 1, 1 << 16), whole_option("inner", f.inner, 1, 1 << 22),
        whole_option("source", f.source, 1, 1 << 20), whole_option("sequence", f.sequence, 1, 1 << 20),
        whole_option("batch", f.batch, 1, 1 << 20), whole_option("vocabulary", f.vocabulary, 1, 1 << 24),
        word_option("act", f.act, {T5Graph::acts.begin(), T5Graph::acts.end()}),
        word_option("dtype", f.dtype, {T5Graph::dtypes.begin(), T5Graph::dtypes.end()}),
        word_option("dropout", f.dropout, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("tied", f.tied, {EagerModules::no_or_yes.begin(), EagerModules::no_or_yes.end()}),
        word_option("logits", f.logits, {EagerModules::logits_kept.begin(), EagerModules::logits_kept.end()}),
        unset_option("lora", f.lora, 1 << 16, "none"),
        quantity_option("rate", f.rate, parse_flops_rate, format_flops_rate)},
       [&f]() -> std::variant<Chain, Graph> { return t5_graph(f); }}};
}

constexpr std::string_view hf_config = "hf";

/// Of `hf:config.json,batch=2`.
std::string config_file(std::string_view reference) {
  std::string_view path = reference.substr(std::min(reference.size(), hf_config.size() + 1));
  path = path.substr(0, path.find(','));
  if (path.starts_with("file=")) path.remove_prefix(5);
  if (path.empty()) {
    throw InputError(located(reference, {}, "", "expected a configuration file of transformers: hf:config.json"));
  }
  return std::string(path);
}

/// With its defaults in these settings: a formula's own, or the sizes of a published model or of a file.
std::optional<Generator> generator_of(std::string_view reference, Settings& settings) {
  const std::string_view name = reference_name(reference);
  std::vector<Generator> all = generators(settings);
  const auto with_name = [&](std::string_view wanted) { return std::ranges::find(all, wanted, &Generator::name); };
  if (const auto own = with_name(name); own != all.end()) return *std::move(own);
  const auto named = std::ranges::find(named_models(), name, &NamedModel::name);
  if (name != hf_config && named == named_models().end()) return std::nullopt;
  const std::string file = name == hf_config ? config_file(reference) : "";
  const std::string sizes =
      name == hf_config ? sizes_of_hf_config(read_text_file(file), file) : std::string(named->sizes);
  const auto formula = with_name(reference_name(sizes));
  EXPECTS(formula != all.end());
  set_reference_options(sizes, formula->options);
  if (name == hf_config) {
    formula->options.insert(formula->options.begin(),
                            {"file", [](std::string_view) { return std::string(); }, [] { return "config.json"; }});
  }
  return *std::move(formula);
}

std::variant<Chain, Graph> made_by(const Generator& generator, std::string_view reference) {
  if (reference_name(reference) != hf_config) return generator.make();
  try {
    return generator.make();
  } catch (const InputError& refused) {  // sizes that do not go together: of the file, or of the reference
    const std::string file = config_file(reference);
    throw_of_hf_config(refused.what(), reference, read_text_file(file), file);
    throw;
  }
}

}  // namespace

bool is_synthetic(std::string_view reference) {
  static const std::vector<std::string> formulas = synthetic_names();  // whose options take long to list
  const std::string_view name = reference_name(reference);
  if (name == hf_config) return reference.size() > name.size();  // a file may have that name
  return std::ranges::find(named_models(), name, &NamedModel::name) != named_models().end() ||
         std::ranges::find(formulas, name) != formulas.end();
}

std::variant<Chain, Graph> synthetic_model(std::string_view reference) {
  Settings settings;
  const std::optional<Generator> generator = generator_of(reference, settings);
  if (!generator) throw InputError(located(reference, {}, "", "no such generator"));
  set_reference_options(reference, generator->options);
  std::variant<Chain, Graph> model = made_by(*generator, reference);
  std::visit([&](auto& made) { made.name = reference; }, model);
  return model;
}

namespace {

std::optional<std::uint32_t> number_in_reference(std::string_view reference, std::string_view option) {
  const std::vector<ReferenceNumber> numbers = synthetic_numbers(reference);
  const auto found = std::ranges::find(numbers, option, &ReferenceNumber::name);
  if (found == numbers.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found->value);
}

}  // namespace

std::string formula_of(std::string_view reference) {
  Settings settings;
  const std::optional<Generator> generator = generator_of(reference, settings);
  return generator ? std::string(generator->name) : "";
}

std::optional<std::uint32_t> samples_of(std::string_view reference) {
  return number_in_reference(reference, samples_option);
}

std::optional<std::uint32_t> layers_of(std::string_view reference) {
  return number_in_reference(reference, layers_option);
}

std::string with_layers(std::string_view reference, std::uint32_t layers) {
  return with_number(reference, {.name = std::string(layers_option)}, layers);
}

std::optional<std::uint32_t> positions_of(std::string_view reference) {
  return number_in_reference(reference, "sequence");
}

std::string with_samples(std::string_view reference, std::uint32_t samples) {
  return with_number(reference, {.name = std::string(samples_option)}, samples);
}

std::vector<ReferenceNumber> synthetic_numbers(std::string_view reference) {
  Settings settings;
  const std::optional<Generator> generator = generator_of(reference, settings);
  return generator ? numbers_in(reference, generator->options) : std::vector<ReferenceNumber>{};
}

std::vector<std::string> synthetic_help() {
  Settings settings;
  std::vector<std::string> lines;
  for (const Generator& generator : generators(settings)) {
    lines.push_back(reference_help(generator.name, generator.options));
  }
  return lines;
}

std::vector<std::string> synthetic_names() {
  Settings settings;
  std::vector<std::string> names;
  for (const Generator& generator : generators(settings)) names.emplace_back(generator.name);
  return names;
}

}  // namespace plimsoll
