#pragma once
// Configuration files of Hugging Face's transformers (config.json) as models by formula.

#include <string>
#include <string_view>

namespace plimsoll {

/// The reference of the formula that has the sizes of a file with this text: `llama:layers=32,width=4096,...`. Knows
/// the model types llama, gemma, gemma2, gemma3_text, phi3, mistral, mixtral, qwen2, qwen3, qwen3_moe,
/// deepseek_v2, deepseek_v3, gpt2, opt, bert, vit, whisper and t5; a dropout of gpt2, opt and bert is that of the file.
/// Throws InputError, located in the file: another model type, a size that is missing, or a setting that the formula
/// has not.
std::string sizes_of_hf_config(std::string text, std::string file_name);

/// What a formula refused of these sizes (`gpt2: heads: must divide ...`), at its place: in the reference, which may
/// change sizes (`hf:config.json,heads=7`), or at the file's key. Throws InputError; nothing where the complaint is
/// about no size of either.
void throw_of_hf_config(std::string_view refusal, std::string_view reference, std::string text, std::string file_name);

}  // namespace plimsoll
