// `qx run MODEL.qxm --prompt TEXT` and `--text TEXT`: generation and embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::apps {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> prompt;
  // "1,2,3": instead of a prompt; the model needs no tokenizer then.
  std::optional<std::string> prompt_tokens;
  int64_t max_tokens = 128;
  double temperature = 0.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  uint64_t seed = 0;
  double timeout_s = 0.0;  // 0: none
  int num_threads = 0;
  bool json = false;
};

struct EmbedArguments {
  std::string model;
  std::vector<std::string> texts;
  int num_threads = 0;
};

// Streams the text, or prints one JSON object: prompt_tokens, tokens, text, stop_reason, times, and mapped_files, the
// files that this process has mapped at the end (a deployment's proof of what it does without). What was measured goes
// to `log`.
Status generate_text(const GenerateArguments& arguments, std::ostream& out, std::ostream& log);

// Prints {"embeddings": [[...], ...]}, one row a text, each number with the digits that give the same float back.
Status embed_texts(const EmbedArguments& arguments, std::ostream& out);

}  // namespace qx::apps
