// Scaled dot product attention. Masks, which the vector kernel does not have, go through the scores of a block of
// queries at a time.
#include "quincunx/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/softmax/softmax.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/half.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

struct Shapes {
  int64_t batch = 0, heads = 0, queries = 0, width = 0;
  int64_t key_heads = 0, keys = 0, value_width = 0;
};

// [S, D] and [H, S, D] become [1, 1, S, D] and [1, H, S, D]; more leading dimensions than two become one.
Result<TensorView> as_four_dims(const TensorView& x) {
  if (x.num_dims() < 2) return invalid_argument("expected [..., S, D], got " + x.to_string());
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  while (shape.size() < 4) {
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), 0);
  }
  while (shape.size() > 4) {
    if (shape[0] != 1 && shape[1] != 1 && strides[0] != shape[1] * strides[1]) {
      return unimplemented("leading dimensions that do not fold into one: " + x.to_string());
    }
    if (shape[1] == 1) strides[1] = strides[0];
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    strides.erase(strides.begin());
  }
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

Result<Shapes> checked_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out) {
  const Shapes s = {q.size(0), q.size(1), q.size(2), q.size(3), k.size(1), k.size(2), v.size(3)};
  const bool fits = k.size(0) == s.batch && v.size(0) == s.batch && k.size(3) == s.width && v.size(1) == s.key_heads &&
                    v.size(2) == s.keys && s.key_heads > 0 && s.heads % s.key_heads == 0 && out.size(0) == s.batch &&
                    out.size(1) == s.heads && out.size(2) == s.queries && out.size(3) == s.value_width;
  if (!fits) {
    return invalid_argument("the shapes of query " + q.to_string() + ", key " + k.to_string() + ", value " +
                            v.to_string() + " and result " + out.to_string() + " do not fit");
  }
  return s;
}

// The mask broadcast to [B, H, S_q, S_kv]; strides are 0 where it is repeated.
Result<TensorView> broadcast_mask(const TensorView& mask, const Shapes& s) {
  const int64_t shape[] = {s.batch, s.heads, s.queries, s.keys};
  int64_t strides[4] = {};
  const int missing = 4 - mask.num_dims();
  for (int i = 0; i < mask.num_dims(); ++i) {
    if (missing < 0 || (mask.size(i) != 1 && mask.size(i) != shape[i + missing])) {
      return invalid_argument("attn_mask: " + mask.to_string() + " does not broadcast to the scores");
    }
    strides[i + missing] = mask.size(i) == 1 ? 0 : mask.stride(i);
  }
  return TensorView::strided(mask.data(), mask.dtype(), shape, strides);
}

// Scores of a block of queries as a matrix, the mask added, softmax, times the values. All tensors are f32.
class BlockwiseAttention {
 public:
  BlockwiseAttention(const Shapes& shapes, const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView* mask, bool causal, double scale, const TensorView& out)
      : s_(shapes), q_(q), k_(k), v_(v), mask_(mask), causal_(causal), scale_(scale), out_(out) {}

  Status run() const {
    const int64_t blocks = (s_.queries + kQueryBlock - 1) / kQueryBlock;
    std::mutex mutex;
    Status first_error;
    parallel_for(0, s_.batch * s_.heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = task / blocks;
        Status status = attend(head / s_.heads, head % s_.heads, task % blocks * kQueryBlock);
        if (status.ok()) continue;
        const std::lock_guard lock(mutex);
        first_error = std::move(status);
      }
    });
    return first_error;
  }

 private:
  static constexpr int64_t kQueryBlock = 64;

  static Result<TensorView> head_of(const TensorView& x, int64_t batch, int64_t head, int64_t first, int64_t count) {
    float* data = x.data_as<float>() + batch * x.stride(0) + head * x.stride(1) + first * x.stride(2);
    const int64_t shape[] = {count, x.size(3)};
    const int64_t strides[] = {x.stride(2), x.stride(3)};
    return TensorView::strided(data, DType::kFloat32, shape, strides);
  }

  void add_mask(int64_t batch, int64_t head, int64_t query, float* scores) const {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    if (mask_ != nullptr) {
      float buffer[kRowElements];
      const int64_t bytes = dtype_size_bytes(mask_->dtype());
      const int64_t base = batch * mask_->stride(0) + head * mask_->stride(1) + query * mask_->stride(2);
      for (int64_t first = 0; first < s_.keys; first += kRowElements) {
        const int64_t count = std::min(kRowElements, s_.keys - first);
        const char* from = mask_->data_as<char>() + (base + first * mask_->stride(3)) * bytes;
        const float* mask = load_row(mask_->dtype(), from, mask_->stride(3), count, buffer);
        if (mask_->dtype() == DType::kBool) {
          for (int64_t j = 0; j < count; ++j) scores[first + j] = mask[j] != 0 ? scores[first + j] : kMasked;
        } else {
          for (int64_t j = 0; j < count; ++j) scores[first + j] += mask[j];
        }
      }
    }
    // PyTorch aligns the first query with the first key.
    if (causal_) std::fill(scores + std::min(query + 1, s_.keys), scores + s_.keys, kMasked);
  }

  // A query that sees nothing gives zeros, which is PyTorch's rule; softmax alone would give NaN.
  bool sees_nothing(const float* scores) const {
    return std::all_of(scores, scores + s_.keys, [](float x) { return x == -std::numeric_limits<float>::infinity(); });
  }

  Status attend(int64_t batch, int64_t head, int64_t first) const {
    const int64_t count = std::min(kQueryBlock, s_.queries - first);
    const int64_t key_head = head / (s_.heads / s_.key_heads);
    QX_ASSIGN_OR_RETURN(const TensorView output, head_of(out_, batch, head, first, count));
    if (s_.keys == 0) return fill_elements(output, 0, 0);
    QX_ASSIGN_OR_RETURN(const TensorView query, head_of(q_, batch, head, first, count));
    QX_ASSIGN_OR_RETURN(const TensorView keys, head_of(k_, batch, key_head, 0, s_.keys));
    QX_ASSIGN_OR_RETURN(const TensorView values, head_of(v_, batch, key_head, 0, s_.keys));
    QX_ASSIGN_OR_RETURN(const TensorView keys_transposed, keys.transpose(0, 1));
    const kernels::Workspace workspace(count * s_.keys);
    const int64_t shape[] = {count, s_.keys};
    QX_ASSIGN_OR_RETURN(const TensorView scores, TensorView::contiguous(workspace.data(), DType::kFloat32, shape));
    kernels::GemmOptions options;
    options.scale = static_cast<float>(scale_);
    QX_RETURN_IF_ERROR(kernels::gemm(query, keys_transposed, scores, options));
    std::vector<bool> blind(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      add_mask(batch, head, first + i, workspace.data() + i * s_.keys);
      blind[static_cast<size_t>(i)] = sees_nothing(workspace.data() + i * s_.keys);
    }
    QX_RETURN_IF_ERROR(kernels::softmax(scores, scores));
    for (int64_t i = 0; i < count; ++i) {
      if (blind[static_cast<size_t>(i)]) std::fill_n(workspace.data() + i * s_.keys, s_.keys, 0.0f);
    }
    return kernels::gemm(scores, values, output);
  }

  const Shapes& s_;
  const TensorView& q_;
  const TensorView& k_;
  const TensorView& v_;
  const TensorView* mask_;
  bool causal_;
  double scale_;
  const TensorView& out_;
};

bool fits_kernel(const Shapes& s, bool causal) {
  const bool sizes = s.width >= 1 && s.value_width >= 1 && s.width <= kernels::kMaxAttentionHeadDim &&
                     s.value_width <= kernels::kMaxAttentionHeadDim;
  return sizes && (!causal || s.queries == s.keys);
}

Status attend(const Call& call, const TensorView* mask, bool causal, std::optional<double> given_scale) {
  QX_ASSIGN_OR_RETURN(const TensorView q, as_four_dims(call.tensor(0)));
  QX_ASSIGN_OR_RETURN(const TensorView k, as_four_dims(call.tensor(1)));
  QX_ASSIGN_OR_RETURN(const TensorView v, as_four_dims(call.tensor(2)));
  QX_ASSIGN_OR_RETURN(const TensorView out, as_four_dims(call.result()));
  QX_ASSIGN_OR_RETURN(const Shapes shapes, checked_shapes(q, k, v, out));
  if (!kernels::is_kernel_float(q.dtype())) {
    return unimplemented("expected float32, bfloat16 or float16, got " + q.to_string());
  }
  if (out.num_elements() == 0) return ok_status();
  QX_ASSIGN_OR_RETURN(const FloatInput query, FloatInput::create(q));
  QX_ASSIGN_OR_RETURN(const FloatInput key, FloatInput::create(k));
  QX_ASSIGN_OR_RETURN(const FloatInput value, FloatInput::create(v));
  QX_ASSIGN_OR_RETURN(const FloatOutput output, FloatOutput::create(out));
  const double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(shapes.width)));
  TensorView whole;
  std::optional<FloatInput> added;
  if (mask != nullptr) {
    QX_ASSIGN_OR_RETURN(whole, broadcast_mask(*mask, shapes));
    if (mask->dtype() != DType::kBool) {
      QX_ASSIGN_OR_RETURN(added, FloatInput::create(whole));
      whole = added->view();
    }
  }
  if (fits_kernel(shapes, causal)) {
    kernels::AttentionOptions options;
    options.scale = static_cast<float>(scale);
    options.causal = causal;
    if (mask != nullptr) options.attn_mask = whole;
    QX_RETURN_IF_ERROR(kernels::attention(query.view(), key.view(), value.view(), options, output.view()));
    return output.store();
  }
  QX_RETURN_IF_ERROR(BlockwiseAttention(shapes, query.view(), key.view(), value.view(),
                                        mask != nullptr ? &whole : nullptr, causal, scale, output.view())
                         .run());
  return output.store();
}

std::optional<double> optional_real(const Call& call, size_t index) {
  return call.has(index) ? std::optional(call.real(index)) : std::nullopt;
}

// scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
Status run_attention(const Call& call) {
  if (call.real(4) != 0) return unimplemented("dropout_p: expected 0, got " + std::to_string(call.real(4)));
  return attend(call, call.optional_tensor(3), call.flag(5), optional_real(call, 6));
}

// _scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout_p, is_causal, attn_mask, scale)
Status run_flash_attention(const Call& call) {
  if (call.real(3) != 0) return unimplemented("dropout_p: expected 0, got " + std::to_string(call.real(3)));
  return attend(call, call.optional_tensor(5), call.flag(4), optional_real(call, 6));
}

constexpr Operator kOperators[] = {
    {"aten.scaled_dot_product_attention.default", "TTTtgbgb", run_attention},
    {.name = "aten._scaled_dot_product_flash_attention_for_cpu.default",
     .signature = "TTTgbtg",
     .run = run_flash_attention,
     .num_computed = 1},
};

}  // namespace

std::span<const Operator> attention_operators() { return kOperators; }

}  // namespace qx::lite
