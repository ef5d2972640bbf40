// The per-instruction-set part of decode attention: some queries of a head against one run of its cache.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/attention/attention_kernel.h"

namespace qx::kernels {

// Queries that are handled at a time.
inline constexpr int64_t kDecodeQueryRows = 32;

inline int64_t decode_output_stride(int64_t value_dim) { return round_up_to_panel(value_dim); }

struct DecodeRun {
  // [num_queries][round_up_to_panel(head_dim)], scaled so that the scores are base-2; zeros beyond head_dim.
  const float* query = nullptr;
  int64_t num_queries = 0;  // at most kDecodeQueryRows
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  DType dtype = DType::kFloat32;  // of the rows, whose elements are contiguous
  const void* const* key_rows = nullptr;
  const void* const* value_rows = nullptr;
  int64_t num_keys = 0;
  // The keys that the next run will read, of which the first are fetched at the end of this one.
  const void* const* next_key_rows = nullptr;
  int64_t num_next_keys = 0;
  const int64_t* visible = nullptr;  // how many of the keys each query sees
  // Results, 64-byte aligned: the sum of weighted values, [num_queries][decode_output_stride(value_dim)], and the state
  // of the online softmax in base 2, [num_queries] each.
  float* output = nullptr;
  float* largest = nullptr;
  float* sum = nullptr;
};

// Floats that decode_run needs, 64-byte aligned.
int64_t decode_workspace_floats();
void decode_run(const DecodeRun& run, float* workspace);

}  // namespace qx::kernels
