// GroupNorm of dense runs: the arithmetic below group_norm.h.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/norm/group_statistics.h"

namespace qx::kernels {

// x and y of one dtype, side by side; y may be x.
struct GroupRun {
  DType dtype;
  const void* x;
  int64_t count;
  void* y;
  bool silu;
  bool stream;    // y does not fit into the caches and is aligned to a vector
  int64_t ahead;  // bytes from what is read to what is fetched beside it, or 0
};

GroupStatistics run_statistics(DType dtype, const void* x, int64_t count);
// One channel's elements.
void normalize_run(const GroupRun& run, const ChannelAffine& channel);
// Rows of neighbouring channels; x, count and y of `run` are those of the first one. The arrays are in the order of
// arrange_parameter (norm_kernel.h).
struct RowSteps {
  int64_t rows;
  int64_t x_bytes;  // from a row of x to the next
  int64_t y_bytes;
};
void normalize_channels(const GroupRun& run, const RowSteps& steps, const ChannelArrays& channels);

// Of rows of `channels` elements, row_stride elements apart, for each channel: the sums of x - shift and of its square.
struct ChannelRows {
  DType dtype;
  const void* x;
  int64_t rows;
  int64_t row_stride;
  int64_t channels;
};
// The arrays have room for a multiple of 64 elements; `shift` is in the order of arrange_parameter.
void channel_moments(const ChannelRows& rows, const float* shift, float* first, float* second);

}  // namespace qx::kernels
