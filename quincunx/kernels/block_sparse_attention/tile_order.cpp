#include "quincunx/kernels/block_sparse_attention/tile_order.h"

#include <algorithm>
#include <string>

namespace qx::kernels {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 20;
constexpr int64_t kMaxTokens = int64_t{1} << 31;

std::string text(const std::array<int64_t, 3>& sizes) {
  return std::to_string(sizes[0]) + " x " + std::to_string(sizes[1]) + " x " + std::to_string(sizes[2]);
}

Status check_options(const TileOptions& options) {
  for (const auto& [name, sizes] : {std::pair{"latent_shape", options.latent}, std::pair{"tile", options.tile}}) {
    for (const int64_t size : sizes) {
      if (size >= 1 && size <= kMaxSize) continue;
      return invalid_argument(std::string(name) + ": expected three sizes of 1 to 2^20, got " + text(sizes));
    }
  }
  if (options.text_length < 0 || options.text_length > kMaxTokens) {
    return invalid_argument("text_len: expected 0 to 2^31, got " + std::to_string(options.text_length));
  }
  const int64_t plane = options.latent[1] * options.latent[2];
  if (plane <= kMaxTokens && options.latent[0] * plane <= kMaxTokens - options.text_length) return ok_status();
  return invalid_argument("latent_shape: expected at most 2^31 tokens with the text, got " + text(options.latent));
}

// The edges of the tiles along one dimension.
std::vector<int64_t> edges_of(int64_t size, int64_t tile, bool has_first_apart) {
  std::vector<int64_t> edges{0};
  if (has_first_apart) edges.push_back(1);
  while (edges.back() < size) edges.push_back(std::min(size, edges.back() + tile));
  return edges;
}

void append_tile(const TileOptions& options, std::array<int64_t, 3> first, std::array<int64_t, 3> last,
                 TileOrder& result) {
  const int64_t offset = options.is_text_first ? options.text_length : 0;
  for (int64_t t = first[0]; t < last[0]; ++t) {
    for (int64_t h = first[1]; h < last[1]; ++h) {
      for (int64_t w = first[2]; w < last[2]; ++w) {
        result.order.push_back(offset + (t * options.latent[1] + h) * options.latent[2] + w);
      }
    }
  }
  result.starts.push_back(static_cast<int64_t>(result.order.size()));
}

void append_text(const TileOptions& options, TileOrder& result) {
  const int64_t image = options.latent[0] * options.latent[1] * options.latent[2];
  const int64_t offset = options.is_text_first ? 0 : image;
  // Sizes of 2^20 would overflow in one product; longer than the text is as good as the text.
  int64_t block = 1;
  for (const int64_t size : options.tile) block = std::min(block * size, kMaxTokens);
  for (int64_t first = 0; first < options.text_length; first += block) {
    const int64_t last = std::min(options.text_length, first + block);
    for (int64_t token = first; token < last; ++token) result.order.push_back(offset + token);
    result.starts.push_back(static_cast<int64_t>(result.order.size()));
    result.tiles.push_back({-1, -1, -1});
  }
}

}  // namespace

Result<TileOrder> tile_order(const TileOptions& options) {
  QX_RETURN_IF_ERROR(check_options(options));
  TileOrder result;
  result.starts.push_back(0);
  std::array<std::vector<int64_t>, 3> edges;
  for (size_t i = 0; i < 3; ++i) {
    edges[i] = edges_of(options.latent[i], options.tile[i], i == 0 && options.has_first_frame_apart);
  }
  for (size_t t = 0; t + 1 < edges[0].size(); ++t) {
    for (size_t h = 0; h + 1 < edges[1].size(); ++h) {
      for (size_t w = 0; w + 1 < edges[2].size(); ++w) {
        append_tile(options, {edges[0][t], edges[1][h], edges[2][w]},
                    {edges[0][t + 1], edges[1][h + 1], edges[2][w + 1]}, result);
        result.tiles.push_back({static_cast<int64_t>(t), static_cast<int64_t>(h), static_cast<int64_t>(w)});
      }
    }
  }
  append_text(options, result);
  return result;
}

}  // namespace qx::kernels
