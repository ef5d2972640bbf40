// Scaled dot product attention in which each block of queries sees a list of blocks of keys.
#pragma once

#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/kernels/attention/attention.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct BlockSparseOptions {
  // Scale, causal diagonal, key lengths and log-sum-exp as in dense attention; the mask is the lists' and these.
  AttentionOptions attention;
  // Block i holds the positions [starts[i], starts[i + 1]): rising numbers from 0 to the length of the sequence, of
  // any distances. An empty sequence has the one start 0.
  std::span<const int64_t> query_starts = {};
  std::span<const int64_t> key_starts = {};
  // The lists: int64 [B, H, query blocks, M] and [B, H, query blocks], any strides. Entries at and after a list's
  // number are not read; those before it are rising indices of key blocks.
  TensorView select_idx = {};
  TensorView select_num_idx = {};
  // Position p of the sequence is row order[p] of query and output, or of key and value: a permutation each. Empty:
  // position p is row p. Not together with causal or key_lengths, whose meaning is in rows.
  std::span<const int64_t> query_order = {};
  std::span<const int64_t> key_order = {};
};

// Tensors as for attention(). A query whose list is empty, or shows no key, gives zeros and a log_sum_exp of -inf. Only
// key blocks that some list names are read. The same bits for any number of threads; with every list full, the bits of
// attention() where blocks end at multiples of 16. Memory: a packed copy of the named keys and values of as many heads
// as fit 32 MiB, one at least. Thread-safe.
//   const int64_t starts[] = {0, 128, 256, 300};
//   block_sparse_attention(q, k, v, {.query_starts = starts, .key_starts = starts, .select_idx = idx, ...}, out)
Status block_sparse_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                              const BlockSparseOptions& options, const TensorView& output);

// The starts of blocks of `block` positions, the last one ragged. Requires length >= 0 and block >= 1.
std::vector<int64_t> uniform_block_starts(int64_t length, int64_t block);

}  // namespace qx::kernels
