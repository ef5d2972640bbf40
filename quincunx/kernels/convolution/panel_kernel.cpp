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

// Floats from row to row of PanelBlock::block.
constexpr int64_t kBlockStride = kMaxTilePanels * kChannelBlock;

// Cuts an item's workspace into parts of 64 bytes' alignment; without memory it counts.
class Parts {
 public:
  explicit Parts(float* memory) : memory_(memory) {}
  int64_t used() const { return used_; }
  template <typename T>
  T* take(int64_t count) {
    float* part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundedUp((count * static_cast<int64_t>(sizeof(T)) + 3) / 4);
    return reinterpret_cast<T*>(part);
  }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// An item's rows, cut into tiles.
struct PanelBlock {
  int64_t rows = 0, num_tiles = 0, num_segments = 0, depth = 0;
  bool writes_rows = false;  // the output's channels are adjacent
  float* zeros = nullptr;
  const float** inputs = nullptr;  // of each tile [num_segments][padded rows], kPanelTileRows * num_segments apart
  PanelRow* places = nullptr;
  float* copies = nullptr;  // runs that are not in the input as they are needed
  int64_t copy_stride = 0;
  float** outputs = nullptr;  // of each row, tiles kPanelTileRows apart: in the output, or in `block`
  float* edge = nullptr;      // one tile
  float* block = nullptr;     // all rows of a group of panels, where the output's channels are apart

  // Tiles are as equal as they can be, and even but for the last.
  int64_t first_row(int64_t tile) const { return tile == num_tiles ? rows : tile * ((rows + 1) / 2) / num_tiles * 2; }
};

int64_t NumCopies(const PanelPhase& phase, int64_t rows) {
  if (phase.source == WindowSource::kTaps) return 0;
  if (phase.source == WindowSource::kGathered) return rows;
  const int64_t lines = rows / phase.dims[2].count + 2;
  return std::min(rows, lines * phase.num_edge_columns()) * static_cast<int64_t>(phase.segments.size());
}

PanelBlock CutWorkspace(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t rows, Parts& parts) {
  PanelBlock block;
  const auto segments = static_cast<int64_t>(phase.segments.size());
  const bool is_gathered = phase.source == WindowSource::kGathered;
  block.rows = rows;
  block.num_tiles = (rows + kPanelTileRows - 1) / kPanelTileRows;
  block.num_segments = is_gathered ? 1 : segments;
  block.depth = problem.in_per_group() * (is_gathered ? segments : phase.taps_per_segment);
  block.writes_rows = problem.output_layout.channel_stride == 1 || problem.out_channels == 1;
  block.places = parts.take<PanelRow>(rows);
  block.inputs = parts.take<const float*>(block.num_tiles * block.num_segments * kPanelTileRows);
  block.outputs = parts.take<float*>(block.num_tiles * kPanelTileRows);
  block.edge = parts.take<float>(kPanelTileRows * kMaxTilePanels * kChannelBlock);
  block.zeros = parts.take<float>(block.depth);
  // Rows a multiple of 4096 bytes apart would share the sets of the L1 cache.
  block.copy_stride = RoundedUp(block.depth) + 16;
  block.copies = parts.take<float>(NumCopies(phase, rows) * block.copy_stride);
  if (!block.writes_rows) block.block = parts.take<float>(rows * kBlockStride);
  return block;
}

int64_t PanelWorkspaceSize(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t rows) {
  Parts parts(nullptr);
  CutWorkspace(problem, phase, rows, parts);
  return parts.used();
}

HWY_INLINE void CopyRun(const float* from, int64_t count, float* to) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count < lanes) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    return;
  }
  for (int64_t i = 0; i + lanes <= count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  // The last elements once more with some before them.
  hn::StoreU(hn::LoadU(d, from + count - lanes), d, to + count - lanes);
}

// Copies `taps` taps of a segment, zeros for those in the padding.
void CopySegment(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                 const SpatialSizes& position, PanelPhase::Segment segment, int64_t taps, float* to) {
  const int64_t channels = problem.in_per_group();
  const int64_t step = problem.dilation[2] * problem.input_layout.strides[2];
  for (int64_t t = 0; t < taps; ++t) {
    const float* from = row.is_interior ? problem.input + row.input + segment.input_offset
                                        : window_element(problem, item, row, position, segment);
    if (from != nullptr) {
      CopyRun(from, channels, to);
    } else {
      std::fill_n(to, channels, 0.0f);
    }
    to += channels;
    segment.offset[2] += problem.dilation[2];
    segment.input_offset += step;
  }
}

// Copies the window of a row to `copies` and returns what is left of them.
float* PlaceGatheredRow(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block,
                        int64_t index, const float** target, float* copies) {
  const PanelRow& row = block.places[index];
  const SpatialSizes position = row.is_interior ? SpatialSizes{} : window_position(item, index);
  float* to = copies;
  for (const PanelPhase::Segment& segment : item.phase->segments) {
    CopySegment(problem, item, row, position, segment, 1, to);
    to += problem.in_per_group();
  }
  *target = copies;
  return copies + block.copy_stride;
}

// The same for a row that reads padding, where only some segments have to be copied.
float* PlaceEdgeRow(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block, int64_t index,
                    int64_t padded, const float** target, float* copies) {
  const PanelPhase& phase = *item.phase;
  const PanelRow& row = block.places[index];
  const SpatialSizes position = window_position(item, index);
  const bool is_copied = phase.source == WindowSource::kLines && row.is_edge_column;
  for (const PanelPhase::Segment& segment : phase.segments) {
    if (is_copied) {
      CopySegment(problem, item, row, position, segment, phase.taps_per_segment, copies);
      *target = copies;
      copies += block.copy_stride;
    } else {
      const float* element = window_element(problem, item, row, position, segment);
      *target = element != nullptr ? element : block.zeros;
    }
    target += padded;
  }
  return copies;
}

// The pointers of one tile, [num_segments][padded]; returns what is left of the copies.
float* PlaceTile(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block, int64_t tile,
                 float* copies) {
  const PanelPhase& phase = *item.phase;
  const int64_t first = block.first_row(tile);
  const int64_t rows = block.first_row(tile + 1) - first;
  const int64_t padded = PaddedRows(rows);
  const float** inputs = block.inputs + tile * block.num_segments * kPanelTileRows;
  float** outputs = block.outputs + tile * kPanelTileRows;
  for (int64_t r = 0; r < rows; ++r) {
    const PanelRow& row = block.places[first + r];
    outputs[r] = block.writes_rows ? problem.output + row.output : block.block + (first + r) * kBlockStride;
    if (phase.source == WindowSource::kGathered) {
      copies = PlaceGatheredRow(problem, item, block, first + r, inputs + r, copies);
    } else if (row.is_interior) {
      const float* base = problem.input + row.input;
      const float** target = inputs + r;
      for (const PanelPhase::Segment& segment : phase.segments) {
        *target = base + segment.input_offset;
        target += padded;
      }
    } else {
      copies = PlaceEdgeRow(problem, item, block, first + r, padded, inputs + r, copies);
    }
  }
  // The row that a ragged tile lacks repeats its last: the same sums are written twice.
  if (padded > rows) {
    for (int64_t s = 0; s < block.num_segments; ++s) inputs[s * padded + rows] = inputs[s * padded + rows - 1];
    outputs[rows] = outputs[rows - 1];
  }
  return copies;
}

// The step from pixel to pixel of a phase, if it is the same across lines; 0 otherwise.
int64_t UniformStep(const PanelPhase& phase, const SpatialSizes& steps) {
  const int64_t width = phase.dims[2].count;
  const int64_t height = phase.dims[1].count;
  const bool lines_join = height == 1 || steps[1] == steps[2] * width;
  const bool planes_join = phase.dims[0].count == 1 || steps[0] == steps[2] * width * height;
  return lines_join && planes_join ? steps[2] : 0;
}

// Rows of one run each, evenly apart in input and output, such as those of most 1 x 1 convolutions: their pointers are
// computed without looking at pixels. False where the rows are not like that or are needed later.
bool PlaceUniformRows(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block) {
  const PanelPhase& phase = *item.phase;
  const int64_t rest = problem.out_per_group() % kChannelBlock;
  if (phase.source != WindowSource::kTaps || phase.segments.size() != 1 || !block.writes_rows ||
      problem.epilogue.residual != nullptr || (rest != 0 && rest != kNarrowColumns)) {
    return false;
  }
  SpatialSizes input_steps{}, output_steps{};
  for (int i = 0; i < kMaxSpatialDims; ++i) {
    const DimPhase& dim = phase.dims[i];
    if (phase.interior_begin[i] != 0 || phase.interior_end[i] != dim.count) return false;
    input_steps[i] = dim.input_step * problem.input_layout.strides[i];
    output_steps[i] = dim.step * problem.output_layout.strides[i];
  }
  const int64_t input_step = UniformStep(phase, input_steps);
  const int64_t output_step = UniformStep(phase, output_steps);
  if (input_step == 0 || output_step == 0) return false;
  PanelItem first = item;
  first.pixel_end = item.pixel_begin + 1;
  PanelRow row;
  place_rows(problem, first, &row);
  const float* input = problem.input + row.input + phase.segments[0].input_offset;
  float* output = problem.output + row.output;
  for (int64_t tile = 0; tile < block.num_tiles; ++tile) {
    const int64_t begin = block.first_row(tile);
    const int64_t rows = block.first_row(tile + 1) - begin;
    for (int64_t r = 0; r < kPanelTileRows; ++r) {
      const int64_t index = begin + std::min(r, rows - 1);
      block.inputs[tile * kPanelTileRows + r] = input + index * input_step;
      block.outputs[tile * kPanelTileRows + r] = output + index * output_step;
    }
  }
  return true;
}

void PlaceRows(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block) {
  if (PlaceUniformRows(problem, item, block)) return;
  std::fill_n(block.zeros, block.depth, 0.0f);
  place_rows(problem, item, block.places);
  float* copies = block.copies;
  for (int64_t tile = 0; tile < block.num_tiles; ++tile) copies = PlaceTile(problem, item, block, tile, copies);
}

// A group of panels: output channels [channel, channel + channels) of the item's group.
struct PanelGroup {
  int64_t first_panel, panels;
  int64_t channel, channels;
  bool is_narrow;

  int64_t width() const { return is_narrow ? kNarrowColumns : panels * kChannelBlock; }
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

// What a tile does with its sums after they are stored.
void FinishTile(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block,
                const PanelGroup& group, int64_t tile, const float* bias, float* const* sums, int64_t offset,
                bool is_copied) {
  const int64_t first = block.first_row(tile);
  const int64_t rows = block.first_row(tile + 1) - first;
  const bool finishes = NeedsFinish(problem.epilogue);
  const FinishRowFunction finish = FinishRowFor(problem.epilogue.activation);
  HWY_ALIGN float residual[kMaxTilePanels * kChannelBlock];
  for (int64_t r = 0; r < rows; ++r) {
    const PanelRow& place = block.places[first + r];
    float* row = sums[r] + offset;
    if (finishes) {
      finish(problem.epilogue,
             OperandsOf(problem, item, group.channel, bias, ResidualOf(problem, place, group, residual)),
             group.channels, row);
    }
    if (is_copied) {
      float* output = problem.output + place.output + group.channel;
      for (int64_t j = 0; j < group.channels; ++j) output[j] = row[j];
    }
  }
}

void RunTile(const ConvolutionProblem& problem, const PanelItem& item, const PanelBlock& block, const PanelGroup& group,
             int64_t tile, const float* bias) {
  const int64_t padded = PaddedRows(block.first_row(tile + 1) - block.first_row(tile));
  const bool is_copied = block.writes_rows && group.channels != group.width();
  float* edge[kPanelTileRows];
  float* const* sums = block.outputs + tile * kPanelTileRows;
  int64_t offset = block.writes_rows ? group.channel : 0;
  if (is_copied) {
    for (int64_t r = 0; r < padded; ++r) edge[r] = block.edge + r * group.width();
    sums = edge;
    offset = 0;
  }
  const int64_t panel_stride = problem.num_taps() * problem.in_per_group() * kChannelBlock;
  const int64_t panels = num_channel_blocks(problem.out_per_group());
  const bool starts_with_bias = bias != nullptr && problem.epilogue.scale == nullptr;
  const PanelTile operands{block.inputs + tile * block.num_segments * kPanelTileRows,
                           item.phase->weight_offsets.data(),
                           item.phase->segments.empty() ? 0 : block.num_segments,
                           block.depth,
                           problem.weight + (item.group * panels + group.first_panel) * panel_stride,
                           panel_stride,
                           starts_with_bias ? bias + item.group * problem.out_per_group() + group.channel : nullptr,
                           sums,
                           offset};
  PanelTileFunctionFor(padded, group.panels, group.is_narrow)(operands);
  if (is_copied || NeedsFinish(problem.epilogue)) {
    FinishTile(problem, item, block, group, tile, bias, sums, offset, is_copied);
  }
}

// Writes the rows of block.block to an output whose channels are apart.
void ScatterBlock(const ConvolutionProblem& problem, const PanelBlock& block, const PanelGroup& group) {
  const int64_t channel_stride = problem.output_layout.channel_stride;
  for (int64_t r = 0; r < block.rows;) {
    int64_t end = r + 1;
    while (end < block.rows && block.places[end].output == block.places[end - 1].output + 1) ++end;
    TransposeRows(block.block + r * kBlockStride, kBlockStride, end - r, group.channels,
                  problem.output + block.places[r].output + group.channel * channel_stride, channel_stride);
    r = end;
  }
}

// Weights of at most so many floats (256 KiB) stay in the L2 cache while all of them meet one tile after another, whose
// rows of output are written whole. Larger ones meet all tiles a group of panels at a time.
constexpr int64_t kResidentWeights = 64 << 10;

// The group of panels that begins with `panel`.
PanelGroup GroupAt(const ConvolutionProblem& problem, const PanelItem& item, int64_t widest, int64_t panel) {
  const int64_t channels = problem.out_per_group();
  const int64_t rest = channels % kChannelBlock;
  const bool ends_narrow = rest != 0 && rest <= kNarrowColumns;
  const int64_t wide_end = ends_narrow ? std::min(item.panel_end, channels / kChannelBlock) : item.panel_end;
  const bool is_narrow = panel == wide_end;
  int64_t panels = is_narrow ? 1 : widest;
  while (!is_narrow && panels > wide_end - panel) panels /= 2;
  const int64_t channel = panel * kChannelBlock;
  return {panel, panels, channel, std::min(panels * kChannelBlock, channels - channel), is_narrow};
}

// Lets a part of the rows that a tile will read arrive while the tile before it meets `group`: pixels of one run each,
// which no tile has read yet.
void PrefetchTile(const PanelItem& item, const PanelBlock& block, const PanelGroup& group, int64_t tile) {
  constexpr int64_t kCacheLine = 64 / sizeof(float);
  const int64_t panels = item.panel_end - item.panel_begin;
  const int64_t begin = block.depth * (group.first_panel - item.panel_begin) / panels;
  const int64_t end = block.depth * (group.first_panel - item.panel_begin + group.panels) / panels;
  const int64_t rows = block.first_row(tile + 1) - block.first_row(tile);
  const float* const* inputs = block.inputs + tile * kPanelTileRows;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = begin; i < end; i += kCacheLine) __builtin_prefetch(inputs[r] + i, 0, 2);
  }
}

void RunPanelItem(const ConvolutionProblem& problem, const PanelItem& item, const float* bias, float* workspace) {
  Parts parts(workspace);
  const PanelBlock block = CutWorkspace(problem, *item.phase, item.pixel_end - item.pixel_begin, parts);
  PlaceRows(problem, item, block);
  const int64_t widest = TilePanels(PaddedRows((block.rows + block.num_tiles - 1) / block.num_tiles));
  const int64_t weights =
      (item.panel_end - item.panel_begin) * kChannelBlock * problem.num_taps() * problem.in_per_group();
  // Rows that are not written in place are gathered for a group of panels at a time.
  const int64_t tiles_at_once = block.writes_rows && weights <= kResidentWeights ? 1 : block.num_tiles;
  const bool has_one_run = item.phase->source == WindowSource::kTaps && block.num_segments == 1;
  for (int64_t begin = 0; begin < block.num_tiles; begin += tiles_at_once) {
    const bool fetches_next = has_one_run && tiles_at_once == 1 && begin + 1 < block.num_tiles;
    for (int64_t panel = item.panel_begin; panel < item.panel_end;) {
      const PanelGroup group = GroupAt(problem, item, widest, panel);
      if (fetches_next) PrefetchTile(item, block, group, begin + 1);
      for (int64_t t = begin; t < begin + tiles_at_once; ++t) RunTile(problem, item, block, group, t, bias);
      if (!block.writes_rows) ScatterBlock(problem, block, group);
      panel += group.panels;
    }
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
