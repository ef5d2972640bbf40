// Whether kernels round to bf16 by instructions of AVX-512 BF16.
#pragma once

namespace qx::kernels {

// Where this CPU has them; but for the payloads of NaN the bits of results do not depend on it, so that tests may turn
// it off while no kernel runs. A variable, because it is read for every pair of vectors.
extern bool has_bfloat16_instructions;

}  // namespace qx::kernels
