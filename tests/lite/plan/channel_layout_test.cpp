#include "quincunx/lite/plan/channel_layout.h"

#include <gtest/gtest.h>

#include "kernels/random_values.h"
#include "lite/graph_builder.h"
#include "quincunx/lite/plan/plan.h"

namespace qx::lite {
namespace {

using kernels::normal_values;

constexpr DType kF32 = DType::kFloat32;
const std::vector<graph::Dim> kImage = {known(2), known(5), known(4), known(6)};

graph::Argument list(std::vector<int64_t> numbers) {
  std::vector<graph::Dim> dims;
  for (const int64_t number : numbers) dims.push_back(known(number));
  return dims;
}

// Images of five channels everywhere, convolved by 3 x 3 windows with padding.
struct Network {
  GraphBuilder builder;

  graph::ValueId convolve(graph::ValueId x) {
    const auto weight = builder.constant<float>(kF32, {5, 5, 3, 3}, normal_values(225, x));
    return builder.call("aten.conv2d.default",
                        {ref(x), ref(weight), std::monostate(), list({1, 1}), list({1, 1}), list({1, 1}), known(1)},
                        kF32, kImage);
  }
  graph::ValueId relu(graph::ValueId x) { return builder.call("aten.relu.default", {ref(x)}, kF32, kImage); }
  graph::ValueId add(graph::ValueId x, graph::ValueId y) {
    return builder.call("aten.add.Tensor", {ref(x), ref(y), known(1)}, kF32, kImage);
  }
  graph::ValueId normalize(graph::ValueId x) {
    std::vector<graph::Argument> arguments = {ref(x)};
    for (const std::vector<float>& values :
         {normal_values(5, 7), normal_values(5, 8), normal_values(5, 9), std::vector<float>{1, 2, 0.5f, 3, 1.5f}}) {
      arguments.push_back(ref(builder.constant<float>(kF32, {5}, values)));
    }
    arguments.insert(arguments.end(),
                     {graph::Argument(false), graph::Argument(0.1), graph::Argument(1e-5), graph::Argument(false)});
    return builder.call("aten.batch_norm.default", arguments, kF32, kImage);
  }
  bool is_adjacent(graph::ValueId id) {
    return values_with_adjacent_channels(builder.graph())[static_cast<size_t>(id)];
  }
};

TEST(ChannelLayout, IsKeptFromConvolutionToConvolution) {
  Network network;
  const auto x = network.builder.input("x", kF32, kImage);
  const auto first = network.convolve(x);
  const auto normal = network.normalize(first);
  const auto active = network.relu(normal);
  const auto second = network.convolve(active);
  const auto sum = network.add(second, active);
  const auto third = network.convolve(sum);
  network.builder.output(third);
  for (const auto id : {first, normal, active, second, sum}) EXPECT_TRUE(network.is_adjacent(id)) << id;
  for (const auto id : {x, third}) EXPECT_FALSE(network.is_adjacent(id)) << id;
}

TEST(ChannelLayout, IsNotGivenToWhatNoConvolutionReadsOrMade) {
  Network network;
  const auto x = network.builder.input("x", kF32, kImage);
  const auto before = network.relu(x);
  const auto convolved = network.convolve(before);
  const auto after = network.relu(convolved);
  network.builder.output(after);
  for (const auto id : {x, before, convolved, after}) EXPECT_FALSE(network.is_adjacent(id)) << id;
}

TEST(ChannelLayout, IsNotGivenToOutputs) {
  Network network;
  const auto first = network.convolve(network.builder.input("x", kF32, kImage));
  network.builder.output(first);
  network.builder.output(network.convolve(first));
  EXPECT_FALSE(network.is_adjacent(first));
}

// The graph whose values between the convolutions have the layout gives the bits of one whose values are outputs too.
TEST(ChannelLayout, DoesNotChangeTheBitsOfResults) {
  const auto build = [](bool keeps_all) {
    Network network;
    const auto x = network.builder.input("x", kF32, kImage);
    const auto first = network.convolve(x);
    const auto normal = network.normalize(first);
    const auto active = network.relu(normal);
    const auto sum = network.add(network.convolve(active), x);
    const auto last = network.relu(network.convolve(sum));
    network.builder.output(last);
    if (keeps_all) {
      for (const auto id : {first, normal, active, sum}) network.builder.output(id);
    }
    EXPECT_EQ(network.is_adjacent(active), !keeps_all);
    EXPECT_EQ(network.is_adjacent(sum), !keeps_all);
    return network.builder.graph();
  };
  std::vector<float> x = normal_values(2 * 5 * 4 * 6, 1);
  std::vector<std::vector<float>> results;
  for (const bool keeps_all : {false, true}) {
    Session session = Session::create({build(keeps_all)}).value();
    const auto outputs = session.run("forward", std::vector{view_of(x, {2, 5, 4, 6})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    results.push_back(values_of<float>(outputs->at(0)));
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace qx::lite
