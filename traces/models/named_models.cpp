#include "traces/models/named_models.h"

namespace plimsoll {
namespace {

constexpr NamedModel models[] = {
    {"bert_base", "bert", 109'514'298, "google-bert/bert-base-uncased"},
    {"bert_large", "bert:layers=24,width=1024,heads=16", 335'174'458, "google-bert/bert-large-uncased"},
    {"deepseek_v2_lite",
     "llama:layers=27,width=2048,heads=16,inner=10944,vocabulary=102400,kv_rank=512,head_size=128,rope_size=64,"
     "value_size=128,experts=64,top_k=6,expert_inner=1408,shared=2,dense_layers=1",
     15'706'484'224, "deepseek-ai/DeepSeek-V2-Lite"},
    {"deepseek_v3",
     "llama:layers=61,width=7168,heads=128,inner=18432,vocabulary=129280,kv_rank=512,q_rank=1536,head_size=128,"
     "rope_size=64,value_size=128,experts=256,top_k=8,expert_inner=2048,shared=1,dense_layers=3,router=sigmoid",
     671'026'404'352, "deepseek-ai/DeepSeek-V3"},
    {"gemma_2b",
     "llama:layers=18,width=2048,heads=8,kv_heads=1,inner=16384,vocabulary=256000,head_size=256,norm=gemma,act=gelu,"
     "tied=yes",
     2'506'172'416, "google/gemma-2b"},
    {"gemma_7b",
     "llama:layers=28,width=3072,heads=16,kv_heads=16,inner=24576,vocabulary=256000,head_size=256,norm=gemma,act=gelu,"
     "tied=yes",
     8'537'680'896, "google/gemma-7b"},
    {"gemma2_2b",
     "llama:layers=26,width=2304,heads=8,kv_heads=4,inner=9216,vocabulary=256000,head_size=256,norm=gemma,act=gelu,"
     "post_norms=yes,window=4096,full_every=2,logit_cap=yes,tied=yes",
     2'614'341'888, "google/gemma-2-2b"},
    {"gemma2_9b",
     "llama:layers=42,width=3584,heads=16,kv_heads=8,inner=14336,vocabulary=256000,head_size=256,norm=gemma,act=gelu,"
     "post_norms=yes,window=4096,full_every=2,logit_cap=yes,tied=yes",
     9'241'705'984, "google/gemma-2-9b"},
    {"gemma2_27b",
     "llama:layers=46,width=4608,heads=32,kv_heads=16,inner=36864,vocabulary=256000,head_size=128,norm=gemma,act=gelu,"
     "post_norms=yes,window=4096,full_every=2,logit_cap=yes,tied=yes",
     27'227'128'320, "google/gemma-2-27b"},
    {"gemma3_1b",
     "llama:layers=26,width=1152,heads=4,kv_heads=1,inner=6912,vocabulary=262144,head_size=256,norm=gemma,act=gelu,"
     "qk_norm=yes,post_norms=yes,window=512,full_every=6,tied=yes",
     999'885'952, "google/gemma-3-1b-pt"},
    // With dense attention in each layer; the paper's table 2.1 says 175.0 billion.
    {"gpt3_175b", "gpt2:layers=96,width=12288,heads=96,positions=2048,sequence=2048", 174'604'259'328,
     "Brown et al., \"Language Models are Few-Shot Learners\", 2020"},
    {"gpt2_large", "gpt2:layers=36,width=1280,heads=20", 774'030'080, "openai-community/gpt2-large"},
    {"gpt2_medium", "gpt2:layers=24,width=1024,heads=16", 354'823'168, "openai-community/gpt2-medium"},
    {"gpt2_xl", "gpt2:layers=48,width=1600,heads=25", 1'557'611'200, "openai-community/gpt2-xl"},
    {"llama2_7b", "llama:layers=32,width=4096,heads=32,kv_heads=32,inner=11008,vocabulary=32000", 6'738'415'616,
     "meta-llama/Llama-2-7b-hf"},
    {"llama2_13b", "llama:layers=40,width=5120,heads=40,kv_heads=40,inner=13824,vocabulary=32000", 13'015'864'320,
     "meta-llama/Llama-2-13b-hf"},
    {"llama2_70b", "llama:layers=80,width=8192,heads=64,kv_heads=8,inner=28672,vocabulary=32000", 68'976'648'192,
     "meta-llama/Llama-2-70b-hf"},
    {"llama3_8b", "llama", 8'030'261'248, "meta-llama/Meta-Llama-3-8B"},
    {"llama3_70b", "llama:layers=80,width=8192,heads=64,inner=28672", 70'553'706'496, "meta-llama/Meta-Llama-3-70B"},
    {"llama3_405b", "llama:layers=126,width=16384,heads=128,inner=53248", 405'853'388'800, "meta-llama/Llama-3.1-405B"},
    {"llama32_1b", "llama:layers=16,width=2048,heads=32,inner=8192,tied=yes", 1'235'814'400, "meta-llama/Llama-3.2-1B"},
    {"llama32_3b", "llama:layers=28,width=3072,heads=24,inner=8192,tied=yes", 3'212'749'824, "meta-llama/Llama-3.2-3B"},
    {"mistral_7b", "llama:vocabulary=32000,window=4096", 7'241'732'096, "mistralai/Mistral-7B-v0.1"},
    {"mistral_nemo_12b", "llama:layers=40,width=5120,head_size=128,vocabulary=131072", 12'247'782'400,
     "mistralai/Mistral-Nemo-Base-2407"},
    {"mixtral_8x7b", "llama:vocabulary=32000,experts=8", 46'702'792'704, "mistralai/Mixtral-8x7B-v0.1"},
    {"mixtral_8x22b", "llama:layers=56,width=6144,heads=48,inner=16384,vocabulary=32000,experts=8", 140'620'634'112,
     "mistralai/Mixtral-8x22B-v0.1"},
    {"opt_1_3b", "opt", 1'315'758'080, "facebook/opt-1.3b"},
    {"opt_6_7b", "opt:layers=32,width=4096,heads=32", 6'658'473'984, "facebook/opt-6.7b"},
    {"phi3_mini", "llama:layers=32,width=3072,heads=32,kv_heads=32,inner=8192,vocabulary=32064,joined=yes,window=2047",
     3'821'079'552, "microsoft/Phi-3-mini-4k-instruct"},
    {"phi4", "llama:layers=40,width=5120,heads=40,kv_heads=10,inner=17920,vocabulary=100352,joined=yes", 14'659'507'200,
     "microsoft/phi-4"},
    {"phi4_mini",
     "llama:layers=32,width=3072,heads=24,kv_heads=8,inner=8192,vocabulary=200064,joined=yes,window=262144,tied=yes",
     3'836'021'760, "microsoft/Phi-4-mini-instruct"},
    {"qwen2_7b", "llama:layers=28,width=3584,heads=28,kv_heads=4,inner=18944,vocabulary=152064,bias=yes", 7'615'616'512,
     "Qwen/Qwen2-7B"},
    {"qwen25_0_5b", "llama:layers=24,width=896,heads=14,kv_heads=2,inner=4864,vocabulary=151936,bias=yes,tied=yes",
     494'032'768, "Qwen/Qwen2.5-0.5B"},
    {"qwen25_1_5b", "llama:layers=28,width=1536,heads=12,kv_heads=2,inner=8960,vocabulary=151936,bias=yes,tied=yes",
     1'543'714'304, "Qwen/Qwen2.5-1.5B"},
    {"qwen25_14b", "llama:layers=48,width=5120,heads=40,kv_heads=8,inner=13824,vocabulary=152064,bias=yes",
     14'770'033'664, "Qwen/Qwen2.5-14B"},
    {"qwen25_32b", "llama:layers=64,width=5120,heads=40,kv_heads=8,inner=27648,vocabulary=152064,bias=yes",
     32'763'876'352, "Qwen/Qwen2.5-32B"},
    {"qwen25_72b", "llama:layers=80,width=8192,heads=64,kv_heads=8,inner=29568,vocabulary=152064,bias=yes",
     72'706'203'648, "Qwen/Qwen2.5-72B"},
    {"qwen3_0_6b",
     "llama:layers=28,width=1024,heads=16,kv_heads=8,inner=3072,vocabulary=151936,head_size=128,qk_norm=yes,tied=yes",
     596'049'920, "Qwen/Qwen3-0.6B"},
    {"qwen3_4b",
     "llama:layers=36,width=2560,heads=32,kv_heads=8,inner=9728,vocabulary=151936,head_size=128,qk_norm=yes,tied=yes",
     4'022'468'096, "Qwen/Qwen3-4B"},
    {"qwen3_8b", "llama:layers=36,width=4096,heads=32,kv_heads=8,inner=12288,vocabulary=151936,qk_norm=yes",
     8'190'735'360, "Qwen/Qwen3-8B"},
    {"qwen3_14b",
     "llama:layers=40,width=5120,heads=40,kv_heads=8,inner=17408,vocabulary=151936,head_size=128,qk_norm=yes",
     14'768'307'200, "Qwen/Qwen3-14B"},
    {"qwen3_32b",
     "llama:layers=64,width=5120,heads=64,kv_heads=8,inner=25600,vocabulary=151936,head_size=128,qk_norm=yes",
     32'762'123'264, "Qwen/Qwen3-32B"},
    {"qwen3_30b_a3b",
     "llama:layers=48,width=2048,heads=32,kv_heads=4,inner=6144,vocabulary=151936,head_size=128,qk_norm=yes,"
     "experts=128,top_k=8,expert_inner=768",
     30'532'122'624, "Qwen/Qwen3-30B-A3B"},
    {"t5_small", "t5", 60'506'624, "google-t5/t5-small"},
    {"t5_base", "t5:layers=12,decoder=12,width=768,heads=12,inner=3072", 222'903'552, "google-t5/t5-base"},
    {"t5_large", "t5:layers=24,decoder=24,width=1024,heads=16,inner=4096", 737'668'096, "google-t5/t5-large"},
    {"t5_3b", "t5:layers=24,decoder=24,width=1024,heads=32,head_size=128,inner=16384", 2'851'598'336,
     "google-t5/t5-3b"},
    {"flan_t5_base", "t5:layers=12,decoder=12,width=768,heads=12,inner=2048,act=gated_gelu,tied=no", 247'577'856,
     "google/flan-t5-base"},
    {"flan_t5_xl", "t5:layers=24,decoder=24,width=2048,heads=32,inner=5120,act=gated_gelu,tied=no", 2'849'757'184,
     "google/flan-t5-xl"},
    {"tinyllama_1_1b", "llama:layers=22,width=2048,heads=32,kv_heads=4,inner=5632,vocabulary=32000", 1'100'048'384,
     "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"},
    {"vit_base", "vit", 86'567'656, "google/vit-base-patch16-224"},
    {"vit_large", "vit:layers=24,width=1024,heads=16", 304'326'632, "google/vit-large-patch16-224"},
    {"whisper_tiny", "whisper:layers=4,decoder=4,width=384,heads=6", 37'760'640, "openai/whisper-tiny"},
    {"whisper_small", "whisper", 241'734'912, "openai/whisper-small"},
    {"whisper_large_v3", "whisper:layers=32,decoder=32,width=1280,heads=20,mels=128,vocabulary=51866", 1'543'490'560,
     "openai/whisper-large-v3"},
};

}  // namespace

std::span<const NamedModel> named_models() {
  return models;
}

}  // namespace plimsoll
