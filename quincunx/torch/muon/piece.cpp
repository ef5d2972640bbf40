#include "quincunx/torch/muon/piece.h"

#include <algorithm>

#include "quincunx/parallel/parallel_for.h"

namespace qx::muon {
namespace {

// Elements below which a piece is not worth a second thread.
constexpr int64_t kGrainElements = 16384;

template <typename T>
float load(T value) {
  return static_cast<float>(value);
}

// PyTorch's lerp: exact at both ends.
float lerp(float begin, float end, float weight) {
  return weight < 0.5f ? begin + weight * (end - begin) : end - (end - begin) * (1.0f - weight);
}

template <typename F>
void dispatch(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float{});
    case DType::kBFloat16: return f(BFloat16{});
    default: return f(Float16{});
  }
}

template <typename F>
void for_rows(const MatrixView& view, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, view.columns));
  parallel_for(0, view.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

template <typename T>
T* row_of(const MatrixView& view, int64_t row) {
  return static_cast<T*>(view.data) + row * view.row_stride;
}

// Unit strides as a constant let the compiler vectorise.
template <typename F>
void with_stride(bool unit, int64_t stride, const F& f) {
  if (unit) {
    f(std::integral_constant<int64_t, 1>{});
  } else {
    f(stride);
  }
}

template <typename T>
T advanced(T state, float grad, const MomentumRule& rule) {
  return static_cast<T>(lerp(load(state), grad, 1.0f - rule.momentum));
}

float update_of(float advanced, float grad, const MomentumRule& rule) {
  return rule.nesterov ? lerp(grad, advanced, rule.momentum) : advanced;
}

// Calls f(state stride, gradient stride) between columns: both constants where both are 1.
template <typename F>
void with_strides(const MatrixView& state, const MatrixView& grad, const F& f) {
  with_stride(state.column_stride == 1 && grad.column_stride == 1, state.column_stride, [&](auto stride) {
    if constexpr (std::is_same_v<decltype(stride), int64_t>) {
      f(stride, grad.column_stride);
    } else {
      f(stride, stride);
    }
  });
}

}  // namespace

Result<MatrixView> matrix_view(const torch::stable::Tensor& tensor, int64_t index, int64_t rows, int64_t columns) {
  using torch::headeronly::ScalarType;
  MatrixView view;
  if (!tensor.is_cpu()) return type_error("expected a CPU tensor");
  switch (tensor.scalar_type()) {
    case ScalarType::Float: view.dtype = DType::kFloat32; break;
    case ScalarType::BFloat16: view.dtype = DType::kBFloat16; break;
    case ScalarType::Half: view.dtype = DType::kFloat16; break;
    default: return type_error("expected float32, bfloat16 or float16");
  }
  const int64_t dims = tensor.dim();
  if (dims < 2 || tensor.size(dims - 2) != rows || tensor.size(dims - 1) != columns) {
    return invalid_argument("expected a tensor that ends in " + std::to_string(rows) + " x " + std::to_string(columns));
  }
  int64_t offset = 0, remaining = index;
  for (int64_t dim = dims - 3; dim >= 0; --dim) {
    if (tensor.size(dim) == 0) return invalid_argument("expected matrix " + std::to_string(index) + ", it is empty");
    offset += remaining % tensor.size(dim) * tensor.stride(dim);
    remaining /= tensor.size(dim);
  }
  if (index < 0 || remaining != 0)
    return invalid_argument("expected at least " + std::to_string(index + 1) + " matrices");
  view.rows = rows;
  view.columns = columns;
  view.row_stride = tensor.stride(dims - 2);
  view.column_stride = tensor.stride(dims - 1);
  view.data = static_cast<char*>(tensor.data_ptr()) + offset * dtype_size_bytes(view.dtype);
  return view;
}

void pack_update(const MatrixView& state, const MatrixView& grad, const MomentumRule& rule, PackedPiece packed) {
  dispatch(state.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_strides(state, grad, [&](auto state_stride, auto grad_stride) {
      for_rows(state, [&](int64_t row) {
        const T* values = row_of<T>(state, row);
        const T* grads = row_of<T>(grad, row);
        float* out = packed.data + row * packed.row_stride;
        for (int64_t i = 0; i < state.columns; ++i) {
          const float g = load(grads[i * grad_stride]);
          out[i] = update_of(load(advanced(values[i * state_stride], g, rule)), g, rule);
        }
      });
    });
  });
}

void pack_without_gradient(const MatrixView& state, const MomentumRule& rule, PackedPiece packed) {
  dispatch(state.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_rows(state, [&](int64_t row) {
      const T* values = row_of<T>(state, row);
      float* out = packed.data + row * packed.row_stride;
      for (int64_t i = 0; i < state.columns; ++i) {
        out[i] = update_of(load(advanced(values[i * state.column_stride], 0.0f, rule)), 0.0f, rule);
      }
    });
  });
}

void advance_momentum(const MatrixView& state, const MatrixView& grad, const MomentumRule& rule) {
  dispatch(state.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_strides(state, grad, [&](auto state_stride, auto grad_stride) {
      for_rows(state, [&](int64_t row) {
        T* values = row_of<T>(state, row);
        const T* grads = row_of<T>(grad, row);
        for (int64_t i = 0; i < state.columns; ++i) {
          T& value = values[i * state_stride];
          value = advanced(value, load(grads[i * grad_stride]), rule);
        }
      });
    });
  });
}

void decay_momentum(const MatrixView& state, const MomentumRule& rule) {
  dispatch(state.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_rows(state, [&](int64_t row) {
      T* values = row_of<T>(state, row);
      for (int64_t i = 0; i < state.columns; ++i) {
        T& value = values[i * state.column_stride];
        value = advanced(value, 0.0f, rule);
      }
    });
  });
}

void apply_update(const MatrixView& param, PackedPiece update, float decay, float step) {
  dispatch(param.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_stride(param.column_stride == 1, param.column_stride, [&](auto stride) {
      for_rows(param, [&](int64_t row) {
        T* values = row_of<T>(param, row);
        const float* change = update.data + row * update.row_stride;
        for (int64_t i = 0; i < param.columns; ++i) {
          values[i * stride] = static_cast<T>(load(values[i * stride]) * decay - step * change[i]);
        }
      });
    });
  });
}

}  // namespace qx::muon
