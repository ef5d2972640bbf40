// What group_norm gathers of a group, and what it makes of it for a channel.
#pragma once

namespace qx::kernels {

// Number, mean and sum of squared differences to the mean of a set of values.
struct GroupStatistics {
  double count = 0;
  double mean = 0;
  double squares = 0;

  // Of this set and another one together, by Chan, Golub and LeVeque's formula. The order of calls decides the bits.
  void join(const GroupStatistics& other) {
    const double total = count + other.count;
    const double difference = other.mean - mean;
    mean += difference * (other.count / total);
    squares += other.squares + difference * difference * (count * other.count / total);
    count = total;
  }
};

// A channel's elements become (x - mean) * scale + bias.
struct ChannelAffine {
  float mean;
  float scale;
  float bias;
};

// The same for channels side by side, one element each. Without has_mean all means are zero.
struct ChannelArrays {
  bool has_mean;
  const float* mean;
  const float* scale;
  const float* bias;
};

}  // namespace qx::kernels
