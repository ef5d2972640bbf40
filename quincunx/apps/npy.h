// NumPy's .npy files: one array each.
#pragma once

#include <string>

#include "quincunx/base/status.h"
#include "quincunx/lite/session.h"

namespace qx::apps {

// Versions 1 to 3 in little-endian row-major order, of bool, integers and float16 to float64. A file of bfloat16, which
// NumPy has no name for, holds raw bytes ('V2') and is read as bfloat16.
Result<lite::Tensor> read_npy(const std::string& path);

// Writes beside the path first, so that a full disk leaves no part of a file there. bfloat16 is written as 'V2'.
Status write_npy(const std::string& path, const TensorView& view);

}  // namespace qx::apps
