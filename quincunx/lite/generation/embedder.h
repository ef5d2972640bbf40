// One vector a text, from the method `encode` of an encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/lite/session.h"

namespace qx::lite {

// That `session` has a method `encode` with inputs `tokens` and `mask`, int64[batch, length], and one output
// float32[batch, width].
Status check_encoder(const Session& session);

// The most tokens of one text that `session`, which check_encoder() accepts, takes.
int64_t encoder_capacity(const Session& session);

// One row for each of `texts`, which all have tokens: float32[texts, width]. Shorter ones are filled up with
// `padding_token` under a mask of 0, which does not change their rows.
Result<Tensor> embed(Session& session, std::span<const std::vector<int32_t>> texts, int32_t padding_token,
                     const RunOptions& options = {});

}  // namespace qx::lite
