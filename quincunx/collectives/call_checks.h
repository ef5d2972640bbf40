// What is wrong with a call on this rank alone. Every message names the argument, its value and what was expected.
#pragma once

#include <span>
#include <vector>

#include "quincunx/collectives/call.h"
#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

Status check_options(const Options& options);
Status check_buffer(const char* name, const Buffer& buffer);
// One buffer a rank, all of `dtype`.
Status check_buffers(const char* name, std::span<const Buffer> buffers, int world_size, DType dtype);
Status check_same(const char* name, const Buffer& buffer, const char* other_name, const Buffer& other);
// Nothing that is written lies in what is read, but that output `own_output` may be input `own_input` itself.
Status check_apart(const char* output_name, std::span<const Buffer> outputs, size_t own_output, const char* input_name,
                   std::span<const Buffer> inputs, size_t own_input);
Status check_rank(const char* name, int rank, int world_size);
Status check_reduction(const Reduction& reduction, DType dtype);

}  // namespace qx::collectives
