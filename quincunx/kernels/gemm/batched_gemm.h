// Many products at once: strided batches of equal sizes, and groups of rows that each have a weight of their own.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {

// output[i] = the product of a[i] and b[i] with its epilogue: a[B, M, K], b[B, K, N], output[B, M, N], f32 with any
// strides (a batch stride of zero shares a matrix). In `options` the bias is [N] or [B, N], the row scale [M] or [B,
// M], the residual [M, N] or [B, M, N]. The bits of each product are those of gemm. Thread-safe.
Status batched_gemm(const TensorView& a, const TensorView& b, const TensorView& output,
                    const GemmOptions& options = {});

// `groups` packed [inner, columns] matrices one after another, as pack_b leaves each. Does not own its memory.
struct PackedGroups {
  const float* data = nullptr;
  int64_t groups = 0;
  int64_t inner = 0;
  int64_t columns = 0;
};

// Floats that the packed matrices take.
Result<int64_t> packed_groups_size(int64_t groups, int64_t inner, int64_t columns);

// Packs `b`, f32 [groups, K, N] with any strides.
Result<PackedGroups> pack_groups(const TensorView& b, std::span<float> storage);

// Rows offsets[g] ... offsets[g + 1] of a[T, K] times the matrix of group g: the experts of a mixture, with their
// tokens sorted. `offsets` holds groups + 1 numbers that rise from 0 to T; a group may have no row. The bias in
// `options` is [groups, N], residual and row scale as in gemm. The bits of a row are those of gemm. Thread-safe.
Status grouped_gemm(const TensorView& a, const PackedGroups& b, std::span<const int64_t> offsets,
                    const TensorView& output, const GemmOptions& options = {});

}  // namespace qx::kernels
