// Published models by name, and configuration files of transformers.

#include "traces/models/named_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/models/hf_config.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

std::int64_t parameters_of(const Graph& graph) {
  std::int64_t numbers = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    std::int64_t of_tensor = 1;
    for (const std::int64_t extent : tensor.shape) of_tensor *= extent;
    numbers += of_tensor;
  }
  return numbers;
}

std::string short_of(std::string_view name, std::string_view sizes) {
  const bool has_sequence = !sizes.starts_with("vit");
  return std::string(name) + (has_sequence ? ":sequence=8" : ":batch=1");
}

Graph without_name(Graph graph) {
  graph.name.clear();
  return graph;
}

std::string complaint_about(const std::string& text) {
  return complaint_of([&] { sizes_of_hf_config(text, "config.json"); });
}

}  // namespace

TEST_CASE("models by name have the published number of parameters", "[traces][named]") {
  for (const NamedModel& model : named_models()) {
    INFO(model.name);
    CHECK(parameters_of(formula_graph_of(short_of(model.name, model.sizes))) == model.parameters);
  }
}

TEST_CASE("a model by name takes the options of its formula", "[traces][named]") {
  CHECK(without_name(formula_graph_of("qwen25_0_5b:layers=2,sequence=16,batch=3")) ==
        without_name(formula_graph_of("llama:layers=2,width=896,heads=14,kv_heads=2,inner=4864,vocabulary=151936,"
                                      "bias=yes,tied=yes,sequence=16,batch=3")));
  CHECK(samples_of("llama3_70b:batch=3") == 3);
  CHECK(layers_of("llama3_70b") == 80);
  CHECK(with_samples("llama3_70b:batch=3,sequence=8", 2) == "llama3_70b:sequence=8,batch=2");
  CHECK(complaint_of([] { load_trace("llama3_8b:layer=3"); }) ==
        "llama3_8b:layer=3: layer: unknown key; did you mean 'layers'?");
}

// The files were written by transformers 5.15 (save_pretrained of its configurations with these sizes), one of each
// model type; its dropout of one tenth is theirs. The image classifier tells ten classes apart.
TEST_CASE("configuration files of transformers give the models of their names", "[traces][named]") {
  const std::string folder = "tests/traces/hf_configs/";
  for (const auto& [name, options] : {std::pair{"bert_large", ",dropout=yes"},
                                      {"deepseek_v2_lite", ""},
                                      {"deepseek_v3", ""},
                                      {"distilbert_base", ",dropout=yes"},
                                      {"gemma_7b", ""},
                                      {"gemma2_2b", ""},
                                      {"gemma3_1b", ""},
                                      {"gpt2_medium", ",dropout=yes"},
                                      {"llama32_1b", ""},
                                      {"mistral_nemo_12b", ""},
                                      {"mixtral_8x22b", ""},
                                      {"opt_6_7b", ",dropout=yes"},
                                      {"phi2", ""},
                                      {"phi3_mini", ""},
                                      {"qwen15_moe_a2_7b", ""},
                                      {"qwen25_0_5b", ""},
                                      {"qwen3_0_6b", ""},
                                      {"qwen3_30b_a3b", ""},
                                      {"roberta_base", ",dropout=yes"},
                                      {"t5_base", ",dropout=yes"},
                                      {"whisper_small", ""},
                                      {"vit_large", ",classes=10"}}) {
    INFO(name);
    const std::string batch = "batch=2" + std::string(name == std::string("vit_large") ? "" : ",sequence=8");
    CHECK(without_name(formula_graph_of("hf:" + folder + name + ".json," + batch)) ==
          without_name(formula_graph_of(std::string(name) + ":" + batch + options)));
  }
}

// By torch.autograd.graph.saved_tensors_hooks, one layer and two, parameters left out (PyTorch 2.6 of Debian 13,
// transformers 5.15, on a CPU, 2026-11-28; traces/kept_by_models.py). Qwen 3 rounds the weights of experts to bf16,
// which the formula keeps in fp32: 256 bytes.
TEST_CASE("layers of Qwen 2 and Qwen 3 keep the bytes that PyTorch keeps", "[traces][named]") {
  const std::string small = "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,";
  for (const auto& [options, bf16, fp32] :
       {std::tuple{"bias=yes,tied=yes", 182'784, 330'240},
        {"qk_norm=yes,head_size=16", 317'952, 530'944},
        {"qk_norm=yes,head_size=16,experts=4,top_k=2,expert_inner=48", 324'224 + 256, 537'472}}) {
    INFO(options);
    CHECK(kept_bytes(formula_graph_of(small + options + ",dtype=bf16"), "layer1.") == bf16);
    CHECK(kept_bytes(formula_graph_of(small + options + ",dtype=fp32"), "layer1.") == fp32);
  }
}

// By the same hooks, of Qwen2MoeForCausalLM (traces/kept_by_models.py): shares as a softmax gives them, and a gate of
// what all tokens pass. It rounds the weights of experts to bf16, as Qwen 3 does.
TEST_CASE("layers of Qwen's first mixtures keep the bytes that PyTorch keeps", "[traces][named]") {
  const std::string small =
      "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,bias=yes,experts=4,top_k="
      "2,"
      "expert_inner=48,shared=2,shared_gate=yes,router=plain_softmax,dtype=";
  CHECK(kept_bytes(formula_graph_of(small + "bf16"), "layer1.") == 245'760 + 256);
  CHECK(kept_bytes(formula_graph_of(small + "fp32"), "layer1.") == 450'944);
  CHECK(complaint_of([] { load_trace("llama:experts=4,shared_gate=yes"); }) ==
        "llama: shared_gate: expected shared experts, which it scales");
}

// By the same hooks, of PhiForCausalLM with positions that turn half of a head. A CPU's norm keeps its mean and root in
// bf16, and dropout keeps factors of 4 bytes there, bools on a GPU: of twice 2 x 32 x 64 values.
TEST_CASE("layers of Phi keep the bytes that PyTorch keeps, and launch its ops", "[traces][named]") {
  const std::string small = "phi:layers=2,width=64,heads=8,inner=160,sequence=32,batch=2,vocabulary=96,dtype=";
  CHECK(kept_bytes(formula_graph_of(small + "bf16"), "layer1.") == 162'048 + 2 * 64 * 2);
  CHECK(kept_bytes(formula_graph_of(small + "fp32"), "layer1.") == 322'048);
  CHECK(kept_bytes(formula_graph_of(small + "fp32,dropout=yes"), "layer1.") == 354'816 - 3 * 2 * 2 * 32 * 64);
  CHECK(kept_bytes(formula_graph_of(small + "amp"), "layer1.") == 330'240);
  // Of 31 ops there and 57 back that PyTorch dispatches 12 and 20 are two rotations, which are an op each.
  const Graph graph = formula_graph_of(small + "bf16");
  const auto ops = [&](Phase phase) {
    return std::ranges::count_if(graph.ops,
                                 [&](const Op& op) { return op.phase == phase && op.name.starts_with("layer1."); });
  };
  CHECK(ops(Phase::forward) == 31 - 12 + 2);
  CHECK(ops(Phase::backward) == 57 - 20 + 2);
}

// Bytes a number of queries and keys that PyTorch's ops move for PhiAttention's rotation of 16 of a head's 64 numbers,
// there and back, without the tables, which are shared by samples and heads (PyTorch 2.6, transformers 5.15;
// `rotated_part` of traces/kept_by_models.py).
TEST_CASE("a rotation of a part of each head moves the bytes that PyTorch moves", "[traces][named]") {
  const auto moved = [](const std::string& dtype, const std::string& op) {
    const Graph graph =
        formula_graph_of("phi:layers=1,width=512,heads=8,rotary=16,sequence=256,batch=2,dtype=" + dtype);
    const auto found = std::ranges::find(graph.ops, "layer0.attention." + op, &Op::name);
    REQUIRE(found != graph.ops.end());
    return static_cast<double>(found->bytes_moved->count) / (2.0 * 256 * 512);
  };
  for (const auto& [dtype, there, back] : {std::tuple{"bf16", 9.0, 19.0}, {"fp32", 18.0, 38.0}, {"amp", 20.0, 28.5}}) {
    INFO(dtype);
    CHECK(moved(dtype, "query.rotary") == there);
    CHECK(moved(dtype, "key.rotary backward") == back);
  }
}

// By the same hooks, of Phi-3 (traces/kept_by_models.py), whose products of several values keep all they made, and
// whose turned values lie head by head, so that what attention makes of them is copied.
TEST_CASE("layers of Phi-3 keep the bytes that PyTorch keeps", "[traces][named]") {
  const std::string small =
      "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,joined=yes,";
  CHECK(kept_bytes(formula_graph_of(small + "dtype=bf16"), "layer1.") == 207'360);
  CHECK(kept_bytes(formula_graph_of(small + "dtype=fp32"), "layer1.") == 379'392);
  CHECK(complaint_of([&] { load_trace(small + "lora=4"); }) ==
        "llama: joined: not with lora, kv_rank, bias or qk_norm");
}

// What two of its models keep, one with the cap and one without, differs by the tangents of 2 x 32 x 96 logits, by the
// same hooks: 12,288 bytes in bf16, and by twice as much in fp32 (traces/kept_by_models.py).
TEST_CASE("capped logits keep their tangents alone", "[traces][named]") {
  const std::string small =
      "llama:layers=1,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,head_size=16,norm=gemma,"
      "act=gelu,post_norms=yes,tied=yes,dtype=";
  for (const auto& [dtype, bytes] : {std::pair{"bf16", 12'288}, {"fp32", 24'576}}) {
    CHECK(kept_bytes(formula_graph_of(small + dtype + ",logit_cap=yes")) -
              kept_bytes(formula_graph_of(small + dtype)) ==
          bytes);
  }
}

// By the same hooks: Gemma, Gemma 2 and Gemma 3 with full attention in each layer.
TEST_CASE("layers of Gemma keep the bytes that PyTorch keeps", "[traces][named]") {
  const std::string small =
      "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,"
      "head_size=16,norm=gemma,act=gelu,tied=yes,";
  for (const auto& [options, bf16, fp32] : {std::tuple{"", 232'448, 396'288},
                                            {"post_norms=yes,logit_cap=yes,", 299'008, 462'848},
                                            {"qk_norm=yes,post_norms=yes,", 434'304, 598'144}}) {
    INFO(options);
    CHECK(kept_bytes(formula_graph_of(small + options + "dtype=bf16"), "layer1.") == bf16);
    CHECK(kept_bytes(formula_graph_of(small + options + "dtype=fp32"), "layer1.") == fp32);
  }
}

TEST_CASE("a layer in six of Gemma 3 sees all keys", "[traces][named]") {
  const Graph graph = formula_graph_of("gemma3_1b:layers=7,sequence=1024");
  const auto work = [&](int layer) {
    const std::string name = "layer" + std::to_string(layer) + ".attention.flash";
    return std::ranges::find(graph.ops, name, &Op::name)->flops->count;
  };
  const double all = 1024.0 * 1024 / 2, within = 1024.0 * 512 - 512.0 * 512 / 2;
  for (const int layer : {0, 4, 6}) CHECK(work(layer) * all == work(5) * within);
}

TEST_CASE("the window of a configuration file is the model's", "[traces][named]") {
  const std::string sizes = sizes_of_hf_config(R"({"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 8, "intermediate_size": 160, "vocab_size": 96, "sliding_window": 4096})",
                                               "config.json");
  CHECK(sizes == "llama:layers=2,width=64,heads=8,inner=160,kv_heads=8,vocabulary=96,tied=no,window=4096");
}

TEST_CASE("a file of Phi says where positions turn how much of a head", "[traces][named]") {
  const std::string phi = R"({"model_type": "phi", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
 "intermediate_size": 160, "vocab_size": 96)";
  const auto sizes = [&](const std::string& more) { return sizes_of_hf_config(phi + more + "}", "config.json"); };
  CHECK(sizes("") == "phi:layers=2,width=64,heads=8,inner=160,rotary=4,vocabulary=96,dropout=no");
  CHECK(sizes(R"(, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}, "resid_pdrop": 0.1)") ==
        "phi:layers=2,width=64,heads=8,inner=160,rotary=2,vocabulary=96,dropout=yes");
  CHECK(sizes(R"(, "partial_rotary_factor": 1.0)").find("rotary=8,") != std::string::npos);
  CHECK(complaint_about(phi + R"(, "partial_rotary_factor": 1.5})") ==
        "config.json:2:71: partial_rotary_factor: expected a share up to 1, found 1.5");
  CHECK(complaint_about(phi + R"(, "rope_parameters": {"partial_rotary_factor": "half"}})") ==
        "config.json:2:91: rope_parameters.partial_rotary_factor: expected a share up to 1, found \"half\"");
  CHECK(complaint_about(phi + R"(, "num_key_value_heads": 2})") ==
        "config.json:2:69: num_key_value_heads: expected 8, found 2: no formula has another number of heads");
  CHECK(complaint_of([] { load_trace("phi:rotary=65"); }) == "phi: rotary: at most the 64 numbers of a head, found 65");
}

TEST_CASE("files of mixtures and encoders that no formula has are refused", "[traces][named]") {
  CHECK(
      complaint_about(R"({"model_type": "qwen2_moe", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 96,
 "num_attention_heads": 8, "intermediate_size": 160, "num_experts": 4, "num_experts_per_tok": 2,
 "moe_intermediate_size": 48, "shared_expert_intermediate_size": 100})") ==
      "config.json:3:66: shared_expert_intermediate_size: expected a multiple of moe_intermediate_size 48, found 100");
  CHECK(complaint_about(R"({"model_type": "roberta", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 96,
 "num_attention_heads": 8, "intermediate_size": 160, "max_position_embeddings": 34, "type_vocab_size": 2})") ==
        "config.json:2:104: type_vocab_size: expected 1, found 2: no formula has another number of segments");
  CHECK(complaint_about(R"({"model_type": "distilbert", "n_layers": 2, "dim": 64, "n_heads": 8, "hidden_dim": 160,
 "vocab_size": 96, "max_position_embeddings": 32, "sinusoidal_pos_embds": true})") ==
        "config.json:2:75: sinusoidal_pos_embds: expected false, found true: no formula has another kind of positions");
  CHECK(complaint_of([] { load_trace("bert:variant=roberta,positions=2"); }) ==
        "bert: positions: expected more than 2, found 2");
  CHECK(complaint_of([] { load_trace("roberta_base:sequence=513"); }) ==
        "bert: sequence: at most positions 512, found 513");
}

TEST_CASE("files of Gemma say nothing of what is Gemma's default", "[traces][named]") {
  const std::string sizes = sizes_of_hf_config(R"({"model_type": "gemma3_text", "num_hidden_layers": 6,
    "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 160, "vocab_size": 96, "sliding_window": 16})",
                                               "config.json");
  CHECK(sizes ==
        "llama:layers=6,width=64,heads=8,inner=160,kv_heads=8,vocabulary=96,tied=yes,head_size=256,norm=gemma,act=gelu,"
        "post_norms=yes,window=16,full_every=6,qk_norm=yes");
}

TEST_CASE("each parameter of Qwen 2 and Qwen 3 has a gradient", "[traces][named]") {
  for (const char* model : {"qwen25_0_5b:layers=2,sequence=8", "qwen3_0_6b:layers=2,sequence=8"}) {
    INFO(model);
    const Graph graph = formula_graph_of(model);
    const auto count = [&](TensorKind kind) { return std::ranges::count(graph.tensors, kind, &Tensor::kind); };
    CHECK(count(TensorKind::parameter) == count(TensorKind::parameter_gradient));
  }
}

TEST_CASE("names that nothing has suggest what there is", "[traces][named]") {
  const auto about = [](const std::string& name) { return complaint_of([&] { find_trace(name); }); };
  CHECK(about("gpt-2") ==
        "no file and no shipped trace is called 'gpt-2'; did you mean 'gpt2'? (plimsoll list traces)");
  CHECK(about("gpt3") ==
        "no file and no shipped trace is called 'gpt3'; did you mean 'gpt3_175b'? (plimsoll list traces)");
  CHECK(about("Llama-3-8B").find("did you mean 'llama3_8b'?") != std::string::npos);
  CHECK(about("unifrm:16").find("called 'unifrm:16'; did you mean 'uniform'?") != std::string::npos);
  CHECK(about("resnt18:batch=2").find("did you mean 'resnet18'?") != std::string::npos);
  CHECK(complaint_of([] { load_trace("decodr:layers=2", {"decoder"}); }).find("did you mean 'decoder'?") !=
        std::string::npos);
}

// Sizes of the file are wrong at its key, those of the reference there.
TEST_CASE("sizes that do not go together are refused where they stand", "[traces][named]") {
  const std::string folder = "tests/traces/hf_configs/";
  CHECK(complaint_of([&] { load_trace("hf:" + folder + "gpt2_medium.json,heads=7"); }) ==
        "hf:" + folder + "gpt2_medium.json,heads=7: heads: must divide width 1024, found 7");
  const std::string text = R"({"model_type": "llama", "hidden_size": 64,
 "num_attention_heads": 7, "num_hidden_layers": 2, "intermediate_size": 160, "vocab_size": 96})";
  CHECK(complaint_of([&] {
          throw_of_hf_config("llama: heads: must divide width 64, found 7", "hf:config.json", text, "config.json");
        }) == "config.json:2:25: num_attention_heads: must divide width 64, found 7");
  throw_of_hf_config("llama: lora: not with experts", "hf:config.json", text, "config.json");  // no key of the file
}

TEST_CASE("a wrong configuration file says where and what", "[traces][named]") {
  CHECK(complaint_about(R"({"model_type": "lama"})") ==
        "config.json:1:16: model_type: no formula for 'lama': expected llama, gemma, gemma2, gemma3_text, phi, phi3, "
        "mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, deepseek_v2, deepseek_v3, gpt2, opt, bert, roberta, "
        "distilbert, vit, whisper or t5; did you mean 'llama'?");
  CHECK(complaint_about("{}").find("missing key 'model_type'") != std::string::npos);
  const std::string llama = R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
 "num_attention_heads": 8, "intermediate_size": 160, "vocab_size": 96)";
  CHECK(complaint_about(llama + R"(, "hidden_act": "gelu"})") ==
        "config.json:2:86: hidden_act: expected silu, found gelu: no formula has another activation");
  CHECK(complaint_about(llama + R"(, "head_dim": "16"})") ==
        "config.json:2:84: head_dim: expected a whole number, found 16");
  CHECK(complaint_about(R"({"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 96})") ==
        "config.json:1:1: missing key 'num_attention_heads'\nconfig.json:1:1: missing key 'intermediate_size'\n"
        "config.json:1:1: missing key 'num_local_experts'\nconfig.json:1:1: missing key 'num_experts_per_tok'");
  CHECK(complaint_about(R"({"model_type": "umt5"})") ==
        "config.json:1:16: model_type: no formula for 'umt5': none has biases of relative positions in each layer");
  for (const auto& [type, head] : {std::pair{"llama", "LlamaForSequenceClassification"},
                                   {"llama", "LlamaModel"},
                                   {"bert", "BertForTokenClassification"},
                                   {"bert", "BertForPreTraining"},
                                   {"t5", "T5EncoderModel"},
                                   {"gpt2", "GPT2ForSequenceClassification"}}) {
    const std::string complaint = complaint_of([&] {
      sizes_of_hf_config(fmt::format(R"({{"model_type": "{}", "architectures": ["{}"]}})", type, head), "config.json");
    });
    INFO(complaint);
    CHECK(complaint.find(fmt::format("architectures: no formula for the head of [\"{}\"]: expected a name with",
                                     head)) != std::string::npos);
  }
  const std::string gemma = R"({"model_type": "gemma2", "num_hidden_layers": 3, "hidden_size": 64,
 "num_attention_heads": 8, "intermediate_size": 160, "vocab_size": 96)";
  CHECK(complaint_about(R"({"model_type": "gemma3_text", "num_hidden_layers": 6, "hidden_size": 64,
 "num_attention_heads": 8, "intermediate_size": 160, "vocab_size": 96, "attn_logit_softcapping": 50.0})") ==
        "config.json:2:98: attn_logit_softcapping: expected null, found 50.0: no formula has another cap of scores");
  CHECK(complaint_about(gemma + R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention"]})") ==
        "config.json:2:87: layer_types: layer 2: expected sliding_attention: each 2th alone is full_attention");
  CHECK(complaint_of([] { load_trace("llama:full_every=2"); }) == "llama: full_every: expected a window");
  CHECK(complaint_of([] { load_trace("hf:"); }) ==
        "hf:: expected a configuration file of transformers: hf:config.json");
  CHECK(complaint_of([] { load_trace("hf:no_such_file.json"); }).find("no_such_file.json") != std::string::npos);
  CHECK(complaint_of([] { load_trace("llama:kv_rank=4,qk_norm=yes"); }) ==
        "llama: bias, qk_norm: not with kv_rank, whose attention has none");
}
