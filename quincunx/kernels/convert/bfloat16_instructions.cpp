#include "quincunx/kernels/convert/bfloat16_instructions.h"

#include "quincunx/base/cpu_features.h"

namespace qx::kernels {

bool has_bfloat16_instructions = cpu_features().avx512bf16;

}  // namespace qx::kernels
