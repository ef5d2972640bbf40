#include "quincunx/kernels/convolution/lines_kernel.h"

#include <algorithm>

#include "quincunx/base/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convolution/lines_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convolution/epilogue-inl.h"
#include "quincunx/kernels/convolution/panel_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a tile are pixels: from the fewest to the most in steps. A last tile that would have fewer than the others
// computes pixels of the one before it again.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kLineTileRows = 14;
inline constexpr int64_t kMinLineTileRows = 8;
inline constexpr int64_t kLineTileRowStep = 1;
inline constexpr int64_t kLineTilePanels = 2;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int64_t kLineTileRows = 6;
inline constexpr int64_t kMinLineTileRows = 4;
inline constexpr int64_t kLineTileRowStep = 1;
inline constexpr int64_t kLineTilePanels = 1;
#else
inline constexpr int64_t kLineTileRows = 2;
inline constexpr int64_t kMinLineTileRows = 2;
inline constexpr int64_t kLineTileRowStep = 1;
inline constexpr int64_t kLineTilePanels = 1;
#endif

int64_t MinStripPixels() { return kMinLineTileRows; }

struct LineTile {
  const float* const* runs;       // [num_runs], of the first row
  const int64_t* weight_offsets;  // [num_runs]
  int64_t num_runs;
  int64_t depth;  // elements of a run
  int64_t step;   // from row to row
  const float* weight;
  int64_t panel_stride;
  const float* initial;  // what the sums start with, or null
  float* output;
  int64_t output_step;
};
using LineTileFunction = void (*)(const LineTile&);

// The first kWidth columns of each panel.
template <int kRows, int kPanels, int kWidth>
void MultiplyLineTile(const LineTile& tile) {
  const hn::CappedTag<float, kWidth> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = kWidth / kLanes;
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  // Rows that one pointer serves: addresses know once and twice a step.
  constexpr int kRowsPerPointer = 3;
  constexpr int kPointers = (kRows + kRowsPerPointer - 1) / kRowsPerPointer;
  // Rows of a panel between its prefetch and its use.
  constexpr int64_t kAhead = kRows >= 4 ? 8 * kChannelBlock : 0;
  const int64_t step = tile.step;
  const int64_t panel_stride = tile.panel_stride;
  V sums[kRows][kVectors];
  QX_UNROLL for (int r = 0; r < kRows; ++r) PrefetchSums<kPanels>(tile.output + r * tile.output_step);
  StartSums(d, tile.initial, sums);
  for (int64_t t = 0; t < tile.num_runs; ++t) {
    const float* HWY_RESTRICT a[kPointers];
    QX_UNROLL for (int i = 0; i < kPointers; ++i) a[i] = tile.runs[t] + i * kRowsPerPointer * step;
    const float* HWY_RESTRICT b = tile.weight + tile.weight_offsets[t];
    for (int64_t k = 0; k < tile.depth; ++k) {
      V weights[kVectors];
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        weights[v] = hn::LoadU(d, b + (v / kVectorsPerPanel) * panel_stride + (v % kVectorsPerPanel) * kLanes);
      }
      if constexpr (kAhead != 0) {
        QX_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(b + p * panel_stride + kAhead);
      }
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r / kRowsPerPointer][r % kRowsPerPointer * step]);
        QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, weights[v], sums[r][v]);
      }
      QX_UNROLL for (int i = 0; i < kPointers; ++i)++ a[i];
      b += kChannelBlock;
    }
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    float* row = tile.output + r * tile.output_step;
    QX_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, row + v * kLanes);
  }
}

// Rows of the tiles of a strip: as many tiles as the widest needs, as equal as there are functions for.
int64_t TileRowsOf(int64_t pixels) {
  const int64_t tiles = (pixels + kLineTileRows - 1) / kLineTileRows;
  const int64_t missing = std::max<int64_t>(0, (pixels + tiles - 1) / tiles - kMinLineTileRows);
  return kMinLineTileRows + (missing + kLineTileRowStep - 1) / kLineTileRowStep * kLineTileRowStep;
}

// `rows` is of TileRowsOf. Narrow: one panel, of which the first kNarrowColumns count.
template <int kRows>
LineTileFunction LineTileFunctionFor(int64_t rows, int64_t panels, bool is_narrow) {
  if constexpr (kRows > kMinLineTileRows) {
    constexpr int kFewer = kRows - static_cast<int>(kLineTileRowStep);
    if (rows < kRows) return LineTileFunctionFor<kFewer>(rows, panels, is_narrow);
  }
  if (is_narrow) return &MultiplyLineTile<kRows, 1, static_cast<int>(kNarrowColumns)>;
  if constexpr (kLineTilePanels >= 2) {
    if (panels == 2) return &MultiplyLineTile<kRows, 2, static_cast<int>(kChannelBlock)>;
  }
  return &MultiplyLineTile<kRows, 1, static_cast<int>(kChannelBlock)>;
}

// What a strip reads: the lines of the input under it that are no padding, and where their tiles begin.
struct LineWindow {
  int64_t num_runs, depth, step, rows, num_tiles;
  int64_t runs_stride;      // from tile to tile
  const float** runs;       // [num_tiles][num_runs]
  int64_t* weight_offsets;  // [num_runs]
};

constexpr int64_t RoundedUp(int64_t count) { return (count + 15) / 16 * 16; }

int64_t MostTiles() { return (kStripPixels + kLineTileRows - 1) / kLineTileRows; }

// Floats of a copied line under a tile.
int64_t CopySize(const ConvolutionProblem& problem) {
  return RoundedUp(((kLineTileRows - 1) * problem.stride[2] + problem.kernel[2]) * problem.in_channels);
}

// Floats of the offsets and pointers of a window with `lines` lines.
int64_t WordsSize(int64_t lines) {
  return RoundedUp(static_cast<int64_t>(sizeof(int64_t) / sizeof(float)) * lines * (MostTiles() + 1));
}

int64_t LineWorkspaceSize(const ConvolutionProblem& problem) {
  const int64_t lines = problem.kernel[0] * problem.kernel[1];
  return WordsSize(lines) + lines * MostTiles() * CopySize(problem);
}

// Floats `first` ... `first + count` of a line of `size` floats, zeros for those outside of it.
void CopyPaddedLine(const float* line, int64_t size, int64_t first, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = first + i >= 0 && first + i < size ? line[first + i] : 0.0f;
}

// The first row of a tile.
int64_t FirstRow(const LineStrip& strip, const LineWindow& window, int64_t tile) {
  return std::min(strip.x_begin + tile * window.rows, strip.x_end - window.rows);
}

// The line `input` of the input under each tile, from runs[0] on, `num_lines` pointers apart; copied to `copies` where
// it crosses the edge of the image. Returns what is left of the copies.
float* PlaceLine(const ConvolutionProblem& problem, const LineStrip& strip, const LineWindow& window,
                 const float* input, int64_t num_lines, const float** runs, float* copies) {
  const int64_t pixel = problem.input_layout.strides[2];
  const int64_t columns = (window.rows - 1) * problem.stride[2] + problem.kernel[2];
  for (int64_t t = 0; t < window.num_tiles; ++t, runs += num_lines) {
    const int64_t first = FirstRow(strip, window, t) * problem.stride[2] - problem.padding[2];
    if (first >= 0 && first + columns <= problem.in[2]) {
      *runs = input + first * pixel;
    } else {
      CopyPaddedLine(input, problem.in[2] * pixel, first * pixel, columns * pixel, copies);
      *runs = copies;
      copies += CopySize(problem);
    }
  }
  return copies;
}

LineWindow PlaceWindow(const ConvolutionProblem& problem, const LineStrip& strip, float* workspace) {
  const int64_t lines = problem.kernel[0] * problem.kernel[1];
  const int64_t pixels = strip.x_end - strip.x_begin;
  LineWindow window{};
  window.depth = problem.kernel[2] * problem.in_channels;
  window.step = problem.stride[2] * problem.input_layout.strides[2];
  window.rows = TileRowsOf(pixels);
  window.num_tiles = (pixels + window.rows - 1) / window.rows;
  window.runs_stride = lines;
  window.weight_offsets = reinterpret_cast<int64_t*>(workspace);
  window.runs = reinterpret_cast<const float**>(window.weight_offsets + lines);
  float* copies = workspace + WordsSize(lines);
  for (int64_t i = 0; i < lines; ++i) {
    const int64_t z = strip.z * problem.stride[0] - problem.padding[0] + i / problem.kernel[1] * problem.dilation[0];
    const int64_t y = strip.y * problem.stride[1] - problem.padding[1] + i % problem.kernel[1] * problem.dilation[1];
    const float* input = input_line(problem, strip.image, z, y);
    if (input == nullptr) continue;
    window.weight_offsets[window.num_runs] = i * window.depth * kChannelBlock;
    copies = PlaceLine(problem, strip, window, input, lines, window.runs + window.num_runs, copies);
    ++window.num_runs;
  }
  return window;
}

// Output channels [channel, channel + channels), in `panels` panels from `panel` on.
struct LinePanels {
  int64_t panel, panels, channel, channels;
  bool is_narrow;

  int64_t width() const { return is_narrow ? kNarrowColumns : panels * kChannelBlock; }
};

LinePanels PanelsAt(const ConvolutionProblem& problem, int64_t panel) {
  const int64_t channel = panel * kChannelBlock;
  const int64_t left = problem.out_channels - channel;
  if (left <= kNarrowColumns) return {panel, 1, channel, left, true};
  // A panel that narrower vectors can do is left for them.
  const bool is_pair = kLineTilePanels >= 2 && left > kChannelBlock + kNarrowColumns;
  const int64_t panels = is_pair ? 2 : 1;
  return {panel, panels, channel, std::min(left, panels * kChannelBlock), false};
}

// The sums of one tile, in the output or, where the panels are wider than what is left of the channels, in `edge`.
void RunLineTile(const ConvolutionProblem& problem, const LineStrip& strip, const LineWindow& window, int64_t tile,
                 const LinePanels& group, const float* bias, float* edge) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  const int64_t panel_stride = problem.num_taps() * problem.in_channels * kChannelBlock;
  const int64_t x = FirstRow(strip, window, tile);
  const ImageLayout& layout = problem.output_layout;
  float* output = problem.output + strip.image * layout.image_stride + strip.z * layout.strides[0] +
                  strip.y * layout.strides[1] + x * layout.strides[2] + group.channel;
  const bool is_copied = group.channels != group.width();
  const bool starts_with_bias = bias != nullptr && epilogue.scale == nullptr;
  float* sums = is_copied ? edge : output;
  const int64_t sums_step = is_copied ? group.width() : layout.strides[2];
  LineTileFunctionFor<static_cast<int>(kLineTileRows)>(window.rows, group.panels, group.is_narrow)(
      {window.runs + tile * window.runs_stride, window.weight_offsets, window.num_runs, window.depth, window.step,
       problem.weight + group.panel * panel_stride, panel_stride, starts_with_bias ? bias + group.channel : nullptr,
       sums, sums_step});
  const bool finishes =
      epilogue.scale != nullptr || epilogue.residual != nullptr || epilogue.activation != ConvolutionActivation::kNone;
  if (!finishes && !is_copied) return;
  const FinishRowFunction finish = FinishRowFor(epilogue.activation);
  const ImageLayout& rows = epilogue.residual_layout;
  RowOperands operands{epilogue.scale != nullptr ? epilogue.scale + group.channel : nullptr,
                       epilogue.scale != nullptr && bias != nullptr ? bias + group.channel : nullptr, nullptr};
  for (int64_t r = 0; r < window.rows; ++r) {
    float* row = sums + r * sums_step;
    if (epilogue.residual != nullptr) {
      operands.residual = epilogue.residual + strip.image * rows.image_stride + strip.z * rows.strides[0] +
                          strip.y * rows.strides[1] + (x + r) * rows.strides[2] + group.channel;
    }
    if (finishes) finish(epilogue, operands, group.channels, row);
    if (is_copied) std::copy_n(row, group.channels, output + r * layout.strides[2]);
  }
}

void RunLineStrip(const ConvolutionProblem& problem, const LineStrip& strip, const float* bias, float* workspace) {
  HWY_ALIGN float edge[kLineTileRows * kLineTilePanels * kChannelBlock];
  const LineWindow window = PlaceWindow(problem, strip, workspace);
  const int64_t panels = num_channel_blocks(problem.out_channels);
  for (int64_t panel = 0; panel < panels;) {
    const LinePanels group = PanelsAt(problem, panel);
    for (int64_t t = 0; t < window.num_tiles; ++t) RunLineTile(problem, strip, window, t, group, bias, edge);
    panel += group.panels;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(MinStripPixels);
HWY_EXPORT(LineWorkspaceSize);
HWY_EXPORT(RunLineStrip);

int64_t min_strip_pixels() { return HWY_DYNAMIC_DISPATCH(MinStripPixels)(); }

int64_t line_workspace_size(const ConvolutionProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(LineWorkspaceSize)(problem);
}

void run_line_strip(const ConvolutionProblem& problem, const LineStrip& strip, const float* bias, float* workspace) {
  HWY_DYNAMIC_DISPATCH(RunLineStrip)(problem, strip, bias, workspace);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
