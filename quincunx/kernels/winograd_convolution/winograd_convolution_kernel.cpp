#include "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/gemm/epilogue-inl.h"
#include "quincunx/kernels/gemm/pack-inl.h"
#include "quincunx/kernels/winograd_convolution/winograd_micro_kernel-inl.h"
#include "quincunx/kernels/winograd_convolution/winograd_transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace {

// The groups of rows of a block: as few as the micro-kernel allows, as equal as they can be.
struct RowGroups {
  int64_t tiles, count;

  explicit RowGroups(int64_t num_tiles) : tiles(num_tiles), count((num_tiles + kWinogradRows - 1) / kWinogradRows) {}
  int64_t first(int64_t group) const { return group * tiles / count; }
};

// Where the tile's outputs begin.
struct TilePlace {
  int64_t image, row, column;

  TilePlace(const WinogradProblem& problem, int64_t tile) {
    const int64_t across = problem.tiles_across();
    const int64_t down = problem.tiles_down();
    column = tile % across * problem.output_tile;
    row = tile / across % down * problem.output_tile;
    image = tile / across / down;
  }
};

// B^T x B of 16 channels: x[i * row_stride + j * pixel_stride] to v[(i * inputs + j) * position_stride].
template <int kTile>
void TransformInputTile(const float* HWY_RESTRICT x, int64_t row_stride, int64_t pixel_stride, float* HWY_RESTRICT v,
                        int64_t position_stride) {
  using Transform = WinogradTransform<kTile>;
  constexpr int kInputs = Transform::kInputs;
  const hn::CappedTag<float, kWinogradPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t lane = 0; lane < kWinogradPanel; lane += lanes) {
    V rows[kInputs][kInputs];
    QX_UNROLL for (int j = 0; j < kInputs; ++j) {
      V column[kInputs], transformed[kInputs];
      QX_UNROLL for (int i = 0; i < kInputs; ++i) {
        column[i] = hn::LoadU(d, x + i * row_stride + j * pixel_stride + lane);
      }
      Transform::Input(d, column, transformed);
      QX_UNROLL for (int i = 0; i < kInputs; ++i) rows[i][j] = transformed[i];
    }
    QX_UNROLL for (int i = 0; i < kInputs; ++i) {
      V transformed[kInputs];
      Transform::Input(d, rows[i], transformed);
      QX_UNROLL for (int j = 0; j < kInputs; ++j) {
        hn::StoreU(transformed[j], d, v + (i * kInputs + j) * position_stride + lane);
      }
    }
  }
}

// The inputs of a tile at the edge of the image or of the channels: what lies outside becomes zero.
template <int kTile>
void GatherEdgeTile(const WinogradProblem& problem, const float* image, int64_t y, int64_t x, int64_t channel,
                    float* gathered) {
  constexpr int64_t kInputs = WinogradTransform<kTile>::kInputs;
  const int64_t channels = std::min(kWinogradPanel, problem.in_channels - channel);
  for (int64_t i = 0; i < kInputs; ++i) {
    for (int64_t j = 0; j < kInputs; ++j, gathered += kWinogradPanel) {
      const bool is_inside = y + i >= 0 && y + i < problem.height && x + j >= 0 && x + j < problem.width;
      const float* pixel = image + (y + i) * problem.input_strides.row + (x + j) * problem.input_strides.pixel;
      if (is_inside && channels == kWinogradPanel) {
        for (int64_t c = 0; c < kWinogradPanel; ++c) gathered[c] = pixel[channel + c];
      } else {
        for (int64_t c = 0; c < kWinogradPanel; ++c)
          gathered[c] = is_inside && c < channels ? pixel[channel + c] : 0.0f;
      }
    }
  }
}

template <int kTile>
void TransformInput(const WinogradProblem& problem, const WinogradBlock& block, int64_t channel_begin,
                    int64_t channel_end, float* v) {
  constexpr int64_t kInputs = WinogradTransform<kTile>::kInputs;
  HWY_ALIGN float gathered[kInputs * kInputs * kWinogradPanel];
  const int64_t channel_blocks = winograd_panels(problem.in_channels);
  const RowGroups groups(block.size());
  for (int64_t group = 0; group < groups.count; ++group) {
    const int64_t first = groups.first(group);
    const int64_t rows = groups.first(group + 1) - first;
    float* group_v = v + first * problem.positions() * problem.padded_in_channels();
    const int64_t position_stride = channel_blocks * rows * kWinogradPanel;
    for (int64_t r = 0; r < rows; ++r) {
      const TilePlace place(problem, block.begin + first + r);
      const float* image = problem.input + place.image * problem.input_strides.image;
      const int64_t y = place.row - problem.padding_top;
      const int64_t x = place.column - problem.padding_left;
      const bool is_inside = y >= 0 && y + kInputs <= problem.height && x >= 0 && x + kInputs <= problem.width;
      for (int64_t c = channel_begin; c < channel_end; ++c) {
        float* target = group_v + (c * rows + r) * kWinogradPanel;
        if (is_inside && (c + 1) * kWinogradPanel <= problem.in_channels) {
          TransformInputTile<kTile>(
              image + y * problem.input_strides.row + x * problem.input_strides.pixel + c * kWinogradPanel,
              problem.input_strides.row, problem.input_strides.pixel, target, position_stride);
        } else {
          GatherEdgeTile<kTile>(problem, image, y, x, c * kWinogradPanel, gathered);
          TransformInputTile<kTile>(gathered, kInputs * kWinogradPanel, kWinogradPanel, target, position_stride);
        }
      }
    }
  }
}

// A^T m A of one tile and one vector of output channels: store(i, j, vector) for each output.
template <int kTile, class D, class Store>
HWY_INLINE void TransformOutput(D d, const float* HWY_RESTRICT m, int64_t position_stride, const Store& store) {
  using Transform = WinogradTransform<kTile>;
  using V = hn::Vec<D>;
  constexpr int kInputs = Transform::kInputs;
  constexpr int kOutputs = Transform::kOutputs;
  V rows[kOutputs][kInputs];
  QX_UNROLL for (int j = 0; j < kInputs; ++j) {
    V products[kInputs], transformed[kOutputs];
    QX_UNROLL for (int i = 0; i < kInputs; ++i) products[i] = hn::LoadU(d, m + (i * kInputs + j) * position_stride);
    Transform::Output(d, products, transformed);
    QX_UNROLL for (int i = 0; i < kOutputs; ++i) rows[i][j] = transformed[i];
  }
  QX_UNROLL for (int i = 0; i < kOutputs; ++i) {
    V transformed[kOutputs];
    Transform::Output(d, rows[i], transformed);
    QX_UNROLL for (int j = 0; j < kOutputs; ++j) store(i, j, transformed[j]);
  }
}

// The same for `columns` output channels, a multiple of 16: y[(i * outputs + j) * columns].
template <int kTile>
void TransformOutputTile(const float* HWY_RESTRICT m, int64_t position_stride, int64_t columns, float* HWY_RESTRICT y) {
  const hn::CappedTag<float, kWinogradPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < columns; column += lanes) {
    TransformOutput<kTile>(d, m + column, position_stride, [&](int i, int j, V sum) HWY_ATTR {
      hn::StoreU(sum, d, y + (i * kTile + j) * columns + column);
    });
  }
}

// Where the outputs of a tile go: channels [column, column + columns) of the pixels that exist.
struct TileTarget {
  TilePlace place;
  int64_t column, columns;
};

// `columns` channels of one pixel.
template <Activation kActivation>
HWY_INLINE void FinishPixel(const float* y, const float* bias, const float* residual, bool residual_first,
                            int64_t columns, float* output) {
  const hn::CappedTag<float, kWinogradPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto finish = [&](V sum, V bias_part, V residual_part) HWY_ATTR {
    const V x = hn::Add(sum, bias_part);
    return residual_first ? Activate<kActivation>(d, hn::Add(x, residual_part))
                          : hn::Add(Activate<kActivation>(d, x), residual_part);
  };
  int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    const V bias_part = bias != nullptr ? hn::LoadU(d, bias + c) : hn::Zero(d);
    const V residual_part = residual != nullptr ? hn::LoadU(d, residual + c) : hn::Zero(d);
    hn::StoreU(finish(hn::LoadU(d, y + c), bias_part, residual_part), d, output + c);
  }
  const int64_t rest = columns - c;
  if (rest == 0) return;
  HWY_ALIGN float tail[3][kWinogradPanel] = {};
  for (int64_t i = 0; i < rest; ++i) {
    tail[0][i] = y[c + i];
    tail[1][i] = bias != nullptr ? bias[c + i] : 0.0f;
    tail[2][i] = residual != nullptr ? residual[c + i] : 0.0f;
  }
  hn::Store(finish(hn::Load(d, tail[0]), hn::Load(d, tail[1]), hn::Load(d, tail[2])), d, tail[0]);
  for (int64_t i = 0; i < rest; ++i) output[c + i] = tail[0][i];
}

// The epilogue of a tile, whose pixels are `y_stride` floats apart in `y`.
template <Activation kActivation>
void FinishTile(const WinogradProblem& problem, const TileTarget& target, const float* y, int64_t y_stride) {
  const TilePlace& place = target.place;
  const int64_t rows = std::min(problem.output_tile, problem.output_height - place.row);
  const int64_t columns = std::min(problem.output_tile, problem.output_width - place.column);
  const auto offset = [&](const PixelStrides& strides, int64_t i, int64_t j) {
    return place.image * strides.image + (place.row + i) * strides.row + (place.column + j) * strides.pixel +
           target.column;
  };
  const float* bias = problem.bias != nullptr ? problem.bias + target.column : nullptr;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const float* residual =
          problem.residual != nullptr ? problem.residual + offset(problem.residual_strides, i, j) : nullptr;
      FinishPixel<kActivation>(y + (i * problem.output_tile + j) * y_stride, bias, residual,
                               problem.residual_before_activation, target.columns,
                               problem.output + offset(problem.output_strides, i, j));
    }
  }
}

using FinishTileFunction = void (*)(const WinogradProblem&, const TileTarget&, const float*, int64_t);

FinishTileFunction FinishTileFor(Activation activation) {
  switch (activation) {
    case Activation::kNone: return &FinishTile<Activation::kNone>;
    case Activation::kRelu: return &FinishTile<Activation::kRelu>;
    case Activation::kGeluTanh: return &FinishTile<Activation::kGeluTanh>;
    case Activation::kGeluErf: return &FinishTile<Activation::kGeluErf>;
    case Activation::kSilu: return &FinishTile<Activation::kSilu>;
  }
  return nullptr;
}

// A tile whose outputs all exist, without a residual: written from the registers of the transform.
template <int kTile, Activation kActivation>
void FinishWholeTile(const WinogradProblem& problem, const TileTarget& target, const float* m,
                     int64_t position_stride) {
  const hn::CappedTag<float, kWinogradPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const PixelStrides& strides = problem.output_strides;
  float* output = problem.output + target.place.image * strides.image + target.place.row * strides.row +
                  target.place.column * strides.pixel + target.column;
  for (int64_t c = 0; c < target.columns; c += lanes) {
    const V bias = problem.bias != nullptr ? hn::LoadU(d, problem.bias + target.column + c) : hn::Zero(d);
    TransformOutput<kTile>(d, m + c, position_stride, [&](int i, int j, V sum) HWY_ATTR {
      hn::StoreU(Activate<kActivation>(d, hn::Add(sum, bias)), d, output + i * strides.row + j * strides.pixel + c);
    });
  }
}

template <int kTile>
FinishTileFunction FinishWholeTileFor(Activation activation) {
  switch (activation) {
    case Activation::kNone: return &FinishWholeTile<kTile, Activation::kNone>;
    case Activation::kRelu: return &FinishWholeTile<kTile, Activation::kRelu>;
    case Activation::kGeluTanh: return &FinishWholeTile<kTile, Activation::kGeluTanh>;
    case Activation::kGeluErf: return &FinishWholeTile<kTile, Activation::kGeluErf>;
    case Activation::kSilu: return &FinishWholeTile<kTile, Activation::kSilu>;
  }
  return nullptr;
}

// M at all positions for all tiles of the block: [p][tile][16 floats a panel].
void MultiplyPositions(const WinogradProblem& problem, const RowGroups& groups, int64_t panel, int64_t panels,
                       const float* v, float* m) {
  const int64_t positions = problem.positions();
  const int64_t panel_stride = positions * problem.in_channels * kWinogradPanel;
  const int64_t columns = panels * kWinogradPanel;
  const int64_t depth = problem.padded_in_channels();
  for (int64_t p = 0; p < positions; ++p) {
    const float* u = problem.weight + panel * panel_stride + p * problem.in_channels * kWinogradPanel;
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = groups.first(group);
      const int64_t rows = groups.first(group + 1) - first;
      WinogradTileFunctionFor(rows, panels)({problem.in_channels, v + (first * positions + p * rows) * depth, u,
                                             panel_stride, m + (p * groups.tiles + first) * columns, columns});
    }
  }
}

template <int kTile>
void Multiply(const WinogradProblem& problem, const WinogradBlock& block, int64_t panel_begin, int64_t panel_end,
              const float* v, float* m) {
  HWY_ALIGN float y[kTile * kTile * kWinogradGroupPanels * kWinogradPanel];
  const FinishTileFunction finish = FinishTileFor(problem.activation);
  const FinishTileFunction finish_whole = FinishWholeTileFor<kTile>(problem.activation);
  const RowGroups groups(block.size());
  for (int64_t panel = panel_begin; panel < panel_end;) {
    const int64_t panels = std::min(kWinogradGroupPanels, panel_end - panel);
    const int64_t padded = panels * kWinogradPanel;
    MultiplyPositions(problem, groups, panel, panels, v, m);
    const int64_t column = panel * kWinogradPanel;
    const int64_t columns = std::min(padded, problem.out_channels - column);
    for (int64_t tile = 0; tile < block.size(); ++tile) {
      const TilePlace place(problem, block.begin + tile);
      const bool is_whole = columns == padded && problem.residual == nullptr &&
                            place.row + kTile <= problem.output_height && place.column + kTile <= problem.output_width;
      if (is_whole) {
        finish_whole(problem, {place, column, columns}, m + tile * padded, block.size() * padded);
      } else {
        TransformOutputTile<kTile>(m + tile * padded, block.size() * padded, padded, y);
        finish(problem, {place, column, columns}, y, padded);
      }
    }
    panel += panels;
  }
}

}  // namespace

void WinogradTransformInput(const WinogradProblem& problem, const WinogradBlock& block, int64_t channel_begin,
                            int64_t channel_end, float* v) {
  const auto transform = problem.output_tile == 4 ? &TransformInput<4> : &TransformInput<2>;
  transform(problem, block, channel_begin, channel_end, v);
}

void WinogradMultiply(const WinogradProblem& problem, const WinogradBlock& block, int64_t panel_begin,
                      int64_t panel_end, const float* v, float* products) {
  const auto multiply = problem.output_tile == 4 ? &Multiply<4> : &Multiply<2>;
  multiply(problem, block, panel_begin, panel_end, v, products);
}

void WinogradTranspose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* target,
                       int64_t target_stride) {
  const int64_t whole_rows = rows / 4 * 4;
  const int64_t whole_columns = columns / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += 4) {
    for (int64_t c = 0; c < whole_columns; c += 4) {
      Transpose4x4(source + r * source_stride + c, source_stride, target + c * target_stride + r, target_stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      target[c * target_stride + r] = source[r * source_stride + c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(WinogradTransformInput);
HWY_EXPORT(WinogradMultiply);
HWY_EXPORT(WinogradTranspose);

// The widest group of panels of any instruction set.
constexpr int64_t kMostGroupPanels = 2;

int64_t winograd_input_size(const WinogradProblem& problem, int64_t tiles) {
  return tiles * problem.positions() * problem.padded_in_channels();
}

int64_t winograd_products_size(const WinogradProblem& problem, int64_t tiles) {
  return tiles * problem.positions() * kMostGroupPanels * kWinogradPanel;
}

void winograd_transform_input(const WinogradProblem& problem, const WinogradBlock& block, int64_t channel_begin,
                              int64_t channel_end, float* v) {
  HWY_DYNAMIC_DISPATCH(WinogradTransformInput)(problem, block, channel_begin, channel_end, v);
}

void winograd_multiply(const WinogradProblem& problem, const WinogradBlock& block, int64_t panel_begin,
                       int64_t panel_end, const float* v, float* products) {
  HWY_DYNAMIC_DISPATCH(WinogradMultiply)(problem, block, panel_begin, panel_end, v, products);
}

void winograd_transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* target,
                        int64_t target_stride) {
  HWY_DYNAMIC_DISPATCH(WinogradTranspose)(source, source_stride, rows, columns, target, target_stride);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
