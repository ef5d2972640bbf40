// Text that grows with each token, for showing a generation while it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/lite/generation/tokenizers/tokenizer.h"

namespace qx::lite {

// What push() returns, one after another and then finish(), is tokenizer.decode() of all tokens if that is valid text;
// bytes of a character that never becomes complete are U+FFFD, in a number that may differ. Not for several threads at
// once. The tokenizer must live as long.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that is certain now and was not before; empty while a character's bytes are incomplete.
  Result<std::string> push(int32_t token);

  // What is left: U+FFFD for a character that never became complete.
  Result<std::string> finish();

 private:
  const Tokenizer& tokenizer_;
  // The latest tokens: the first num_context_ are wholly shown and stay because a token's text may depend on its left
  // neighbour, the others are not.
  std::vector<int32_t> tokens_;
  size_t num_context_ = 0;
  // What decode(tokens_) begins with and was returned already.
  std::string shown_;
};

}  // namespace qx::lite
