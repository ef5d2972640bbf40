#include "quincunx/kernels/convolution/panel_kernel.h"

#include <algorithm>

#include "quincunx/kernels/convolution/panel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convolution/panel_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convolution/epilogue-inl.h"
#include "quincunx/kernels/convolution/panel_tiles-inl.h"
#include "quincunx/kernels/convolution/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

int64_t PanelTileRows() { return kPanelTileRows; }

constexpr int64_t RoundedUp(int64_t count) { return (count + 15) / 16 * 16; }

// Cuts an item's workspace into parts of 64 bytes' alignment.
class Parts {
 public:
  explicit Parts(float* memory) : memory_(memory) {}
  int64_t used() const { return used_; }
  template <typename T>
  T* take(int64_t count) {
    float* part = memory_ + used_;
    used_ += RoundedUp((count * static_cast<int64_t>(sizeof(T)) + 3) / 4);
    return reinterpret_cast<T*>(part);
  }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// An item's rows, cut into tiles that are as equal as they can be.
struct PanelBlock {
  int64_t rows = 0, num_tiles = 0, num_taps = 0, depth = 0;
  bool writes_rows = false;  // the output's channels are adjacent
  const float* zeros = nullptr;
  const float** inputs = nullptr;  // of each tile [num_taps][padded rows], kPanelTileRows * num_taps apart
  PanelRow* places = nullptr;
  float* gathered = nullptr;
  int64_t gathered_stride = 0;
  float* edge = nullptr;   // one tile
  float* block = nullptr;  // all rows of a group of panels, where the output's channels are apart

  int64_t first_row(int64_t tile) const { return tile * rows / num_tiles; }
};

PanelBlock CutWorkspace(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t rows, Parts& parts) {
  PanelBlock block;
  const auto taps = static_cast<int64_t>(phase.taps.size());
  block.rows = rows;
  block.num_tiles = (rows + kPanelTileRows - 1) / kPanelTileRows;
  block.num_taps = phase.gathers ? 1 : taps;
  block.depth = problem.in_per_group() * (phase.gathers ? taps : 1);
  block.writes_rows = problem.output_layout.channel_stride == 1 || problem.out_channels == 1;
  block.places = parts.take<PanelRow>(rows);
  block.inputs = parts.take<const float*>(block.num_tiles * block.num_taps * kPanelTileRows);
  block.edge = parts.take<float>(kPanelTileRows * kMaxTilePanels * kChannelBlock);
  if (phase.gathers) {
    // Rows a multiple of 4096 bytes apart would share the sets of the L1 cache.
    block.gathered_stride = RoundedUp(block.depth) + 16;
    block.gathered = parts.take<float>(rows * block.gathered_stride);
  } else {
    block.zeros = parts.take<float>(problem.in_per_group());
  }
  if (!block.writes_rows) block.block = parts.take<float>(rows * kMaxTilePanels * kChannelBlock);
  return block;
}

int64_t PanelWorkspaceSize(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t rows) {
  Parts parts(nullptr);
  CutWorkspace(problem, phase, rows, parts);
  return parts.used();
}

// The pointers of one tile, [num_taps][padded].
void PlaceTile(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block, int64_t tile) {
  const auto& taps = item.phase->taps;
  const int64_t first = block.first_row(tile);
  const int64_t rows = block.first_row(tile + 1) - first;
  const int64_t padded = PaddedRows(rows);
  const float** inputs = block.inputs + tile * block.num_taps * kPanelTileRows;
  for (int64_t r = 0; r < padded; ++r) {
    const int64_t index = first + std::min(r, rows - 1);
    const PanelRow& row = block.places[index];
    if (item.phase->gathers) {
      inputs[r] = block.gathered + index * block.gathered_stride;
      continue;
    }
    const float* base = problem.input + row.input;
    for (int64_t t = 0; t < block.num_taps; ++t) {
      inputs[t * padded + r] = row.is_interior
                                   ? base + taps[static_cast<size_t>(t)].input_offset
                                   : window_element(problem, item, row, taps[static_cast<size_t>(t)], block.zeros);
    }
  }
}

void PlaceRows(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block) {
  PanelRowCursor cursor(problem, item, item.pixel_begin);
  for (int64_t r = 0; r < block.rows; ++r, cursor.advance()) {
    block.places[r] = cursor.row();
    if (item.phase->gathers) {
      gather_window(problem, item, block.places[r], block.gathered + r * block.gathered_stride);
    }
  }
  for (int64_t tile = 0; tile < block.num_tiles; ++tile) PlaceTile(problem, item, block, tile);
}

// A group of panels: output channels [channel, channel + channels) of the item's group.
struct PanelGroup {
  int64_t first_panel, panels;
  int64_t channel, channels;
};

RowOperands OperandsOf(const ConvolutionProblem& problem, const PanelItem& item, int64_t channel, const float* bias,
                       const float* residual) {
  const int64_t first = item.group * problem.out_per_group() + channel;
  const float* scale = problem.epilogue.scale;
  // Without a scale the sums start with the bias.
  return {scale != nullptr ? scale + first : nullptr, scale != nullptr && bias != nullptr ? bias + first : nullptr,
          residual};
}

bool NeedsFinish(const ConvolutionEpilogue& epilogue) {
  return epilogue.scale != nullptr || epilogue.activation != ConvolutionActivation::kNone ||
         epilogue.residual != nullptr;
}

// The residual of a row, channels adjacent: in place, or copied to `storage`.
const float* ResidualOf(const ConvolutionProblem& problem, const PanelRow& row, const PanelGroup& group,
                        float* storage) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  if (epilogue.residual == nullptr) return nullptr;
  const int64_t stride = epilogue.residual_layout.channel_stride;
  const float* residual = epilogue.residual + row.residual + group.channel * stride;
  if (stride == 1) return residual;
  for (int64_t j = 0; j < group.channels; ++j) storage[j] = residual[j * stride];
  return storage;
}

void RunTile(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block, const PanelGroup& group,
             int64_t tile, const float* bias) {
  const int64_t first = block.first_row(tile);
  const int64_t rows = block.first_row(tile + 1) - first;
  const int64_t padded = PaddedRows(rows);
  const int64_t width = group.panels * kChannelBlock;
  const bool is_ragged = group.channels != width;
  float* sums[kPanelTileRows];
  for (int64_t r = 0; r < padded; ++r) {
    float* edge = block.edge + r * width;
    if (!block.writes_rows) {
      sums[r] = r < rows ? block.block + (first + r) * width : edge;
    } else {
      sums[r] = r < rows && !is_ragged ? problem.output + block.places[first + r].output + group.channel : edge;
    }
  }
  const int64_t taps = static_cast<int64_t>(item.phase->taps.size());
  const int64_t all_taps = problem.num_taps();
  const int64_t panel_stride = all_taps * problem.in_per_group() * kChannelBlock;
  const int64_t panels = num_channel_blocks(problem.out_per_group());
  const bool starts_with_bias = bias != nullptr && problem.epilogue.scale == nullptr;
  const PanelTile operands{block.inputs + tile * block.num_taps * kPanelTileRows,
                           item.phase->weight_offsets.data(),
                           taps == 0 ? 0 : block.num_taps,
                           block.depth,
                           problem.weight + (item.group * panels + group.first_panel) * panel_stride,
                           panel_stride,
                           starts_with_bias ? bias + item.group * problem.out_per_group() + group.channel : nullptr,
                           sums};
  PanelTileFunctionFor(padded, group.panels)(operands);

  const bool finishes = NeedsFinish(problem.epilogue);
  if (!finishes && !(block.writes_rows && is_ragged)) return;
  const FinishRowFunction finish = FinishRowFor(problem.epilogue.activation);
  HWY_ALIGN float residual[kMaxTilePanels * kChannelBlock];
  for (int64_t r = 0; r < rows; ++r) {
    const PanelRow& place = block.places[first + r];
    if (finishes) {
      finish(problem.epilogue,
             OperandsOf(problem, item, group.channel, bias, ResidualOf(problem, place, group, residual)),
             group.channels, sums[r]);
    }
    if (block.writes_rows && is_ragged) {
      float* output = problem.output + place.output + group.channel;
      for (int64_t j = 0; j < group.channels; ++j) output[j] = sums[r][j];
    }
  }
}

// Writes the rows of block.block to an output whose channels are apart.
void ScatterBlock(const ConvolutionProblem& problem, const PanelBlock& block, const PanelGroup& group) {
  const int64_t width = group.panels * kChannelBlock;
  const int64_t channel_stride = problem.output_layout.channel_stride;
  for (int64_t r = 0; r < block.rows;) {
    int64_t end = r + 1;
    while (end < block.rows && block.places[end].output == block.places[end - 1].output + 1) ++end;
    TransposeRows(block.block + r * width, width, end - r, group.channels,
                  problem.output + block.places[r].output + group.channel * channel_stride, channel_stride);
    r = end;
  }
}

void RunPanelItem(const ConvolutionProblem& problem, const PanelItem& item, const float* bias, float* workspace) {
  Parts parts(workspace);
  const PanelBlock block = CutWorkspace(problem, *item.phase, item.pixel_end - item.pixel_begin, parts);
  if (block.zeros != nullptr) std::fill_n(const_cast<float*>(block.zeros), problem.in_per_group(), 0.0f);
  PlaceRows(problem, item, block);
  const int64_t widest = TilePanels(PaddedRows((block.rows + block.num_tiles - 1) / block.num_tiles));
  for (int64_t panel = item.panel_begin; panel < item.panel_end;) {
    int64_t panels = widest;
    while (panels > item.panel_end - panel) panels /= 2;
    const int64_t channel = panel * kChannelBlock;
    const PanelGroup group{panel, panels, channel, std::min(panels * kChannelBlock, problem.out_per_group() - channel)};
    for (int64_t tile = 0; tile < block.num_tiles; ++tile) RunTile(problem, item, block, group, tile, bias);
    if (!block.writes_rows) ScatterBlock(problem, block, group);
    panel += panels;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(PanelTileRows);
HWY_EXPORT(PanelWorkspaceSize);
HWY_EXPORT(RunPanelItem);

int64_t panel_tile_rows() { return HWY_DYNAMIC_DISPATCH(PanelTileRows)(); }

int64_t panel_workspace_size(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t num_pixels) {
  return HWY_DYNAMIC_DISPATCH(PanelWorkspaceSize)(problem, phase, num_pixels);
}

void run_panel_item(const ConvolutionProblem& problem, const PanelItem& item, const float* bias, float* workspace) {
  HWY_DYNAMIC_DISPATCH(RunPanelItem)(problem, item, bias, workspace);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
