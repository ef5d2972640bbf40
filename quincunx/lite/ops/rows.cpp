#include "quincunx/lite/ops/rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace qx::lite {
namespace {

// Where a value does not fit, the cast of C++ is undefined; processors give the least integer.
template <typename To, typename From>
To cast_value(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLimit = 0x1p63;
    const int64_t wide = value >= -kLimit && value < kLimit ? static_cast<int64_t>(value) : INT64_MIN;
    return static_cast<To>(wide);
  } else {
    return static_cast<To>(value);
  }
}

template <typename C, typename T>
C widen(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return cast_value<C>(static_cast<float>(value));
  } else {
    return cast_value<C>(value);
  }
}
template <typename T, typename C>
T narrow(C value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return T(static_cast<float>(value));
  } else {
    return cast_value<T>(value);
  }
}

// Calls body(T{}) with the type that holds `dtype`; is_computable(dtype) holds.
template <typename Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBool: return body(bool{});
    case DType::kInt8: return body(int8_t{});
    case DType::kUInt8: return body(uint8_t{});
    case DType::kInt16: return body(int16_t{});
    case DType::kUInt16: return body(uint16_t{});
    case DType::kInt32: return body(int32_t{});
    case DType::kUInt32: return body(uint32_t{});
    case DType::kInt64: return body(int64_t{});
    case DType::kUInt64: return body(uint64_t{});
    case DType::kFloat16: return body(Float16{});
    case DType::kBFloat16: return body(BFloat16{});
    case DType::kFloat32: return body(float{});
    case DType::kFloat64: return body(double{});
    default: QX_CHECK_MESSAGE(false, "a dtype that is not computed with");
  }
}

template <size_t kBytes>
struct Opaque {
  unsigned char bytes[kBytes];
};

template <typename T>
void copy_row(const char* source, int64_t source_stride, int64_t count, char* result, int64_t result_stride) {
  if (source_stride == 1 && result_stride == 1) {
    std::memmove(result, source, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  const auto* from = reinterpret_cast<const T*>(source);
  auto* to = reinterpret_cast<T*>(result);
  for (int64_t i = 0; i < count; ++i) to[i * result_stride] = from[i * source_stride];
}

template <typename T>
void copy_all(const RowLoop& loop) {
  loop.run([&](const auto& pointers, int64_t count) {
    copy_row<T>(pointers[1], loop.stride(1), count, pointers[0], loop.stride(0));
  });
}

template <typename C>
void convert_all(const RowLoop& loop, DType from, DType to) {
  loop.run([&](const auto& pointers, int64_t count) {
    C buffer[kRowElements];
    store_row(load_row<C>(from, pointers[1], loop.stride(1), count, buffer), count, to, pointers[0], loop.stride(0));
  });
}

}  // namespace

ComputeType compute_type(DType dtype) {
  if (dtype == DType::kFloat64) return ComputeType::kDouble;
  return is_floating_point(dtype) ? ComputeType::kFloat : ComputeType::kInteger;
}

bool is_computable(DType dtype) {
  return dtype <= DType::kUInt64 || (dtype >= DType::kFloat16 && dtype <= DType::kFloat64);
}

template <typename C>
const C* load_row(DType dtype, const void* data, int64_t stride, int64_t count, C* buffer) {
  const C* loaded = buffer;
  with_type(dtype, [&]<typename T>(T) {
    const T* source = static_cast<const T*>(data);
    if constexpr (std::is_same_v<T, C>) {
      if (stride == 1) {
        loaded = source;
        return;
      }
    }
    if (stride == 0) {
      std::fill_n(buffer, count, widen<C>(*source));
    } else if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) buffer[i] = widen<C>(source[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) buffer[i] = widen<C>(source[i * stride]);
    }
  });
  return loaded;
}

template <typename C>
void store_row(const C* row, int64_t count, DType dtype, void* data, int64_t stride) {
  with_type(dtype, [&]<typename T>(T) {
    T* result = static_cast<T*>(data);
    if constexpr (std::is_same_v<T, C>) {
      if (result == row) return;
    }
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) result[i] = narrow<T>(row[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) result[i * stride] = narrow<T>(row[i]);
    }
  });
}

template const float* load_row(DType, const void*, int64_t, int64_t, float*);
template const double* load_row(DType, const void*, int64_t, int64_t, double*);
template const int64_t* load_row(DType, const void*, int64_t, int64_t, int64_t*);
template void store_row(const float*, int64_t, DType, void*, int64_t);
template void store_row(const double*, int64_t, DType, void*, int64_t);
template void store_row(const int64_t*, int64_t, DType, void*, int64_t);

Result<RowLoop> RowLoop::create(std::span<const TensorView* const> operands) {
  QX_CHECK(!operands.empty() && operands.size() <= kMaxRowOperands);
  RowLoop loop;
  const TensorView& first = *operands[0];
  const int rank = first.num_dims();
  loop.num_operands_ = operands.size();
  for (size_t i = 0; i < operands.size(); ++i) {
    loop.data_[i] = operands[i]->data_as<char>();
    loop.element_bytes_[i] = dtype_size_bytes(operands[i]->dtype());
    const int missing = rank - operands[i]->num_dims();
    bool fits = missing >= 0;
    for (int dim = std::max(missing, 0); fits && dim < rank; ++dim) {
      const int64_t size = operands[i]->size(dim - missing);
      fits = size == first.size(dim) || size == 1;
    }
    if (!fits) {
      return invalid_argument("the shape of " + operands[i]->to_string() + " does not broadcast to " +
                              first.to_string());
    }
  }
  // The first operand's memory from end to end: for a contiguous one from the last dimension outwards. strides_[...][0]
  // becomes the row.
  std::array<int, TensorView::kMaxDims> order = {};
  size_t num_dims = 0;
  for (int dim = rank; dim-- > 0;) {
    if (first.size(dim) != 1) order[num_dims++] = dim;
  }
  const std::span<int> dims = std::span(order).first(num_dims);
  std::ranges::sort(dims, {}, [&](int dim) { return std::pair(first.stride(dim), -dim); });
  int count = 0;
  for (const int dim : dims) {
    const int64_t size = first.size(dim);
    std::array<int64_t, kMaxRowOperands> steps = {};
    bool folds = count > 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      const int own = dim - (rank - operands[i]->num_dims());
      steps[i] = own < 0 || operands[i]->size(own) == 1 ? 0 : operands[i]->stride(own);
      const size_t last = static_cast<size_t>(std::max(count - 1, 0));
      folds = folds && steps[i] == loop.strides_[i][last] * loop.shape_[last];
    }
    if (folds) {
      loop.shape_[static_cast<size_t>(count - 1)] *= size;
      continue;
    }
    loop.shape_[static_cast<size_t>(count)] = size;
    for (size_t i = 0; i < operands.size(); ++i) loop.strides_[i][static_cast<size_t>(count)] = steps[i];
    ++count;
  }
  if (count > 0) {
    loop.row_length_ = loop.shape_[0];
    for (size_t i = 0; i < operands.size(); ++i) loop.row_strides_[i] = loop.strides_[i][0];
    loop.num_dims_ = count;
    for (int dim = 1; dim < count; ++dim) loop.num_rows_ *= loop.shape_[static_cast<size_t>(dim)];
  } else {
    // One element: each operand is read once, so that it may be taken for contiguous.
    loop.row_strides_.fill(1);
  }
  return loop;
}

void RowLoop::place(int64_t row, int64_t first, std::array<char*, kMaxRowOperands>& pointers) const {
  std::array<int64_t, kMaxRowOperands> offsets = {};
  for (size_t i = 0; i < num_operands_; ++i) offsets[i] = first * row_strides_[i];
  for (int dim = 1; dim < num_dims_; ++dim) {
    const int64_t index = row % shape_[static_cast<size_t>(dim)];
    row /= shape_[static_cast<size_t>(dim)];
    for (size_t i = 0; i < num_operands_; ++i) offsets[i] += index * strides_[i][static_cast<size_t>(dim)];
  }
  for (size_t i = 0; i < num_operands_; ++i) pointers[i] = data_[i] + offsets[i] * element_bytes_[i];
}

Status copy_elements(const TensorView& source, const TensorView& result) {
  if (source.dtype() != result.dtype()) {
    return type_error("expected equal dtypes, got " + source.to_string() + " and " + result.to_string());
  }
  const TensorView* operands[] = {&result, &source};
  QX_ASSIGN_OR_RETURN(const RowLoop loop, RowLoop::create(operands));
  switch (dtype_size_bytes(source.dtype())) {
    case 1: copy_all<uint8_t>(loop); break;
    case 2: copy_all<uint16_t>(loop); break;
    case 4: copy_all<uint32_t>(loop); break;
    case 8: copy_all<uint64_t>(loop); break;
    default: copy_all<Opaque<16>>(loop);
  }
  return ok_status();
}

Status convert_elements(const TensorView& source, const TensorView& result) {
  if (source.dtype() == result.dtype()) return copy_elements(source, result);
  if (!is_computable(source.dtype()) || !is_computable(result.dtype())) {
    return unimplemented("no conversion from " + source.to_string() + " to " + result.to_string());
  }
  const TensorView* operands[] = {&result, &source};
  QX_ASSIGN_OR_RETURN(const RowLoop loop, RowLoop::create(operands));
  switch (compute_type(source.dtype())) {
    case ComputeType::kFloat: convert_all<float>(loop, source.dtype(), result.dtype()); break;
    case ComputeType::kDouble: convert_all<double>(loop, source.dtype(), result.dtype()); break;
    case ComputeType::kInteger: convert_all<int64_t>(loop, source.dtype(), result.dtype()); break;
  }
  return ok_status();
}

Status fill_elements(const TensorView& result, double value, int64_t integer_value) {
  const bool real = compute_type(result.dtype()) != ComputeType::kInteger;
  QX_ASSIGN_OR_RETURN(const TensorView source,
                      TensorView::contiguous(real ? static_cast<void*>(&value) : static_cast<void*>(&integer_value),
                                             real ? DType::kFloat64 : DType::kInt64, {}));
  return convert_elements(source, result);
}

}  // namespace qx::lite
