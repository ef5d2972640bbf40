// Reductions over every dtype and operator against values computed here in double or in 64-bit integers, on both
// transports, with the same bits on all ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/ranks.h"
#include "quincunx/base/float8.h"
#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives::testing {
namespace {

struct Case {
  int world_size;
  bool shared_memory;
};

class Reductions : public ::testing::TestWithParam<Case> {
 protected:
  Job job() const { return {GetParam().world_size, GetParam().shared_memory}; }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Reductions,
                         ::testing::Values(Case{1, true}, Case{2, true}, Case{3, true}, Case{4, true}, Case{2, false},
                                           Case{3, false}),
                         [](const auto& info) {
                           return std::string(info.param.shared_memory ? "SharedMemory" : "Tcp") +
                                  std::to_string(info.param.world_size);
                         });

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum,   ReduceOp::kAverage, ReduceOp::kProduct,
                                ReduceOp::kMin,   ReduceOp::kMax,     ReduceOp::kBitAnd,
                                ReduceOp::kBitOr, ReduceOp::kBitXor,  ReduceOp::kPreMulSum};
constexpr double kMultiplier = 0.5;

// Element i of rank r: small integers, which every type holds and whose products over 4 ranks stay exact in it.
int input_at(DType dtype, int rank, int64_t i) {
  const auto mixed = static_cast<int>((i * 3 + rank * 5) % 3);
  if (dtype == DType::kBool) return mixed == 0;
  if (dtype == DType::kFloat8E8M0FNU) return 1 << mixed;
  return mixed + 1 - (i % 2 == 0 && dtype >= DType::kFloat8E4M3FN ? 2 * mixed + 2 : 0);
}

void store(DType dtype, std::byte* at, double value) {
  const auto put = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return put(static_cast<uint8_t>(value));
    case DType::kInt8: return put(static_cast<int8_t>(value));
    case DType::kInt16: return put(static_cast<int16_t>(value));
    case DType::kUInt16: return put(static_cast<uint16_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value));
    case DType::kUInt32: return put(static_cast<uint32_t>(value));
    case DType::kInt64: return put(static_cast<int64_t>(value));
    case DType::kUInt64: return put(static_cast<uint64_t>(value));
    case DType::kFloat16: return put(float16_bits_from_float(static_cast<float>(value)));
    case DType::kBFloat16: return put(bfloat16_bits_from_float(static_cast<float>(value)));
    case DType::kFloat32: return put(static_cast<float>(value));
    case DType::kFloat64: return put(value);
    case DType::kComplex64:
      put(static_cast<float>(value));
      at += 4;
      return put(0.0f);
    case DType::kComplex128:
      put(value);
      at += 8;
      return put(0.0);
    case DType::kFloat8E4M3FN: return put(float8_e4m3fn_bits_from_float(static_cast<float>(value)));
    case DType::kFloat8E5M2: return put(float8_e5m2_bits_from_float(static_cast<float>(value)));
    case DType::kFloat8E4M3FNUZ: return put(float8_e4m3fnuz_bits_from_float(static_cast<float>(value)));
    case DType::kFloat8E5M2FNUZ: return put(float8_e5m2fnuz_bits_from_float(static_cast<float>(value)));
    case DType::kFloat8E8M0FNU: return put(float8_e8m0fnu_bits_from_float(static_cast<float>(value)));
  }
}

// What the ranks' values come to, in double: exact for the values of input_at.
double expected_at(DType dtype, ReduceOp op, int world_size, int64_t i) {
  double result = input_at(dtype, 0, i);
  if (op == ReduceOp::kPreMulSum) result *= kMultiplier;
  for (int r = 1; r < world_size; ++r) {
    const double next = input_at(dtype, r, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result += next; break;
      case ReduceOp::kPreMulSum: result += next * kMultiplier; break;
      case ReduceOp::kProduct: result *= next; break;
      case ReduceOp::kMin: result = std::min(result, next); break;
      case ReduceOp::kMax: result = std::max(result, next); break;
      case ReduceOp::kBitAnd: result = static_cast<double>(static_cast<int>(result) & static_cast<int>(next)); break;
      case ReduceOp::kBitOr: result = static_cast<double>(static_cast<int>(result) | static_cast<int>(next)); break;
      case ReduceOp::kBitXor: result = static_cast<double>(static_cast<int>(result) ^ static_cast<int>(next)); break;
    }
  }
  if (op == ReduceOp::kAverage) {
    const bool integer = dtype < DType::kFloat8E4M3FN;
    result = integer ? std::trunc(result / world_size) : result / world_size;
  }
  return dtype == DType::kBool ? static_cast<double>(result != 0) : result;
}

TEST_P(Reductions, EveryDtypeAndOperator) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (int d = 0; d <= static_cast<int>(DType::kComplex128); ++d) {
      const auto dtype = static_cast<DType>(d);
      const int64_t element = dtype_size_bytes(dtype);
      for (const ReduceOp op : kAllOps) {
        for (const int64_t count : {int64_t{1}, int64_t{37}, int64_t{9001}}) {
          std::vector<std::byte> data(static_cast<size_t>(count * element)), expected(data.size());
          for (int64_t i = 0; i < count; ++i) store(dtype, data.data() + i * element, input_at(dtype, rank, i));
          const Buffer buffer{data.data(), count, dtype};
          const Status status = group->all_reduce(buffer, {op, kMultiplier})->wait();
          const std::string label =
              std::string(dtype_name(dtype)) + " operator " + std::to_string(static_cast<int>(op));
          if (!kernels::check_reduce(dtype, static_cast<kernels::ReduceKind>(op)).ok()) {
            require_contains(status, StatusCode::kUnimplemented, {std::string(dtype_name(dtype))});
            continue;
          }
          require_ok(status);
          for (int64_t i = 0; i < count; ++i) {
            store(dtype, expected.data() + i * element, expected_at(dtype, op, job.world_size, i));
          }
          // Minus zero and zero are one value: an average of integers in double may be either.
          require(data == expected || dtype >= DType::kComplex64, label + " of " + std::to_string(count));
        }
      }
    }
  });
}

// 256 + 1 + 1 + 1 in bfloat16: rounding after every step stays at 256.
TEST_P(Reductions, HalfPrecisionRoundsOnce) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : {8, 20000}) {
      std::vector<uint16_t> data(static_cast<size_t>(count));
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = bfloat16_bits_from_float(static_cast<int>(i) % job.world_size == rank ? 256.0f : 1.0f);
      }
      require_ok(group->all_reduce(buffer_of(data, DType::kBFloat16), {})->wait());
      const uint16_t expected = bfloat16_bits_from_float(256.0f + static_cast<float>(job.world_size - 1));
      for (const uint16_t bits : data) require(bits == expected, "rounded more than once");
    }
  });
}

// Values of very different magnitude, where each order of addition gives other bits: the result is that of the order of
// ranks, for every transport, in every collective.
TEST_P(Reductions, AddInTheOrderOfRanks) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    const auto value = [](int r, int64_t i) {
      const float fraction = static_cast<float>((i * 2654435761u + static_cast<uint32_t>(r) * 40503u) % 8191) / 8192.0f;
      const float sign = (i + r) % 3 == 0 ? -1.0f : 1.0f;
      return std::ldexp(sign * (1.0f + fraction), static_cast<int>((i + r * 7) % 40) - 20);
    };
    for (int round = 0; round < 3; ++round) {
      for (const int64_t count : {100, 3000, 400001}) {
        std::vector<float> data(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = value(rank, i);
        require_ok(group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
        for (int64_t i = 0; i < count; ++i) {
          float sum = value(0, i);
          for (int r = 1; r < job.world_size; ++r) sum += value(r, i);
          const bool same = std::memcmp(&sum, &data[static_cast<size_t>(i)], sizeof(sum)) == 0;
          require(same, "other bits at " + std::to_string(i));
        }
      }
    }
  });
}

TEST_P(Reductions, MinimumAndMaximumPassNanOn) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> data(50, static_cast<float>(rank));
      data[static_cast<size_t>(10 + rank)] = std::numeric_limits<float>::quiet_NaN();
      require_ok(group->all_reduce(buffer_of(data, DType::kFloat32), {op})->wait());
      for (int i = 0; i < 50; ++i) {
        const bool nan = i >= 10 && i < 10 + job.world_size;
        require(std::isnan(data[static_cast<size_t>(i)]) == nan, "NaN at " + std::to_string(i));
      }
    }
  });
}

}  // namespace
}  // namespace qx::collectives::testing
