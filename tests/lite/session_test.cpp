#include "quincunx/lite/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;

// y = relu(x w^T + b) + x over [s, 2].
graph::Graph residual_graph() {
  GraphBuilder builder;
  const int32_t rows = builder.symbol("rows", 0, 8);
  const std::vector<graph::Dim> shape = {symbol(rows), known(2)};
  const auto x = builder.input("x", kF32, shape);
  const auto weight = builder.constant<float>(kF32, {2, 2}, {1, 2, -3, 4});
  const auto bias = builder.constant<float>(kF32, {2}, {0.5f, -1});
  const auto product = builder.call("aten.linear.default", {ref(x), ref(weight), ref(bias)}, kF32, shape);
  const auto active = builder.call("aten.relu.default", {ref(product)}, kF32, shape);
  builder.output(builder.call("aten.add.Tensor", {ref(active), ref(x), known(1)}, kF32, shape));
  return builder.graph();
}

std::vector<float> residual_reference(const std::vector<float>& x) {
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); i += 2) {
    y.push_back(std::max(0.0f, x[i] + 2 * x[i + 1] + 0.5f) + x[i]);
    y.push_back(std::max(0.0f, -3 * x[i] + 4 * x[i + 1] - 1) + x[i + 1]);
  }
  return y;
}

TEST(Session, RunsAGraphAtEachSizeOfItsSymbol) {
  Session session = Session::create({residual_graph()}).value();
  for (const int64_t rows : {3, 1, 0, 8, 3}) {
    std::vector<float> x(static_cast<size_t>(2 * rows));
    std::iota(x.begin(), x.end(), -3.0f);
    const auto outputs = session.run("forward", std::vector{view_of(x, {rows, 2})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(values_of<float>(outputs->at(0)), residual_reference(x));
  }
}

TEST(Session, GivesTheSameWithAndWithoutRewrites) {
  std::vector<float> x = {1, -2, 0.25f, 4};
  for (const bool rewrites : {false, true}) {
    Session session = Session::create({residual_graph()}, {.rewrites = rewrites}).value();
    Profile profile;
    RunOptions options;
    options.profile = &profile;
    const auto outputs = session.run("forward", std::vector{view_of(x, {2, 2})}, options).value();
    EXPECT_EQ(values_of<float>(outputs[0]), residual_reference(x));
    EXPECT_EQ(profile.nodes().size(), rewrites ? 1u : 3u) << "the epilogue takes activation and residual";
  }
}

TEST(Session, ComputesRightInTheCallersMemory) {
  Session session = Session::create({residual_graph()}).value();
  std::vector<float> x = {1, -2, 0.25f, 4}, y(5, 99);
  const TensorView outputs[] = {view_of(y, {2, 2})};
  RunOptions options;
  options.outputs = outputs;
  const auto result = session.run("forward", std::vector{view_of(x, {2, 2})}, options).value();
  EXPECT_EQ(result[0].view.data(), y.data());
  const std::vector<float> expected = residual_reference(x);
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4), expected);
  EXPECT_EQ(y[4], 99);
}

TEST(Session, ReadsStridedInputs) {
  Session session = Session::create({residual_graph()}).value();
  std::vector<float> x = {1, 0.25f, -2, 4};
  const TensorView transposed = view_of(x, {2, 2}).transpose(0, 1).value();
  const auto outputs = session.run("forward", std::vector{transposed}).value();
  EXPECT_EQ(values_of<float>(outputs[0]), residual_reference({1, -2, 0.25f, 4}));
}

TEST(Session, HandsOutViewsOfInputsAsCopies) {
  GraphBuilder builder;
  const auto x = builder.input("x", kF32, {known(2), known(3)});
  const auto t = builder.call("aten.t.default", {ref(x)}, kF32, {known(3), known(2)});
  builder.output(t);
  builder.output(x);
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto outputs = run_graph(builder.graph(), {view_of(values, {2, 3})}).value();
  values.assign(6, 0);
  EXPECT_EQ(values_of<float>(outputs[0]), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(values_of<float>(outputs[1]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Session, NamesWhatIsWrongWithAnInput) {
  Session session = Session::create({residual_graph()}).value();
  std::vector<float> x(18);
  std::vector<int64_t> integers(4);
  const auto message = [&](const TensorView& input) {
    return session.run("forward", std::vector{input}).status().message();
  };
  EXPECT_EQ(message(view_of(x, {2, 3})), "input 'x': expected float32[rows, 2], got [2, 3]");
  EXPECT_EQ(message(view_of(x, {4})), "input 'x': expected float32[rows, 2], got [4]");
  EXPECT_EQ(message(view_of(x, {9, 2})), "input 'x': expected float32[rows, 2], got [9, 2]: rows must be 0 to 8");
  EXPECT_EQ(message(view_of(integers, {2, 2})), "input 'x': expected float32[rows, 2], got int64[2, 2]");
  EXPECT_EQ(session.run("forward", {}).status().message(), "method 'forward': expected 1 inputs, got 0");
  EXPECT_EQ(session.run("backward", {}).status().message(), "method 'backward': expected one of 'forward'");
}

TEST(Session, UnifiesASymbolOverItsInputs) {
  GraphBuilder builder;
  const int32_t n = builder.symbol("n", 1, 100);
  const auto x = builder.input("x", kF32, {symbol(n)});
  const auto y = builder.input("y", kF32, {symbol(n, 2, 1)});
  builder.output(x);
  builder.output(y);
  std::vector<float> a(3), b(9);
  Session session = Session::create({builder.graph()}).value();
  EXPECT_TRUE(session.run("forward", std::vector{view_of(a, {3}), view_of(b, {7})}).ok());
  EXPECT_EQ(session.run("forward", std::vector{view_of(a, {3}), view_of(b, {9})}).status().message(),
            "input 'y': expected float32[2 * n + 1], got [9]: n is 3 in input 'x' and 4 here");
  EXPECT_EQ(session.run("forward", std::vector{view_of(a, {3}), view_of(b, {8})}).status().message(),
            "input 'y': expected float32[2 * n + 1], got [8]");
}

TEST(Session, RejectsGraphsThatItCannotRun) {
  GraphBuilder unknown;
  const auto x = unknown.input("x", kF32, {known(2)});
  unknown.output(unknown.call("aten.bessel_j0.default", {ref(x)}, kF32, {known(2)}));
  EXPECT_EQ(Session::create({unknown.graph()}).status().message(),
            "method 'forward': the runtime has no aten.bessel_j0.default; docs/lite-operators.md lists what it has");
  EXPECT_EQ(Session::create({residual_graph(), residual_graph()}).status().message(),
            "methods: two are named 'forward'");
  EXPECT_EQ(Session::create({}).status().message(), "methods: expected at least one graph");
  EXPECT_EQ(Session::create({residual_graph()}, {.num_threads = -1}).status().message(),
            "num_threads: expected 0 to 1024, got -1");
}

TEST(Session, RejectsReadersOfResultsThatServeTraining) {
  for (const bool reads : {false, true}) {
    GraphBuilder builder;
    const auto x = builder.input("x", kF32, {known(2), known(3)});
    const auto y = builder.value(kF32, {known(2), known(3)});
    const auto mean = builder.value(kF32, {known(2), known(1)});
    builder.graph().nodes.push_back({"aten.native_layer_norm.default",
                                     "norm",
                                     {ref(x), std::vector{known(3)}, std::monostate(), std::monostate(), 1e-5},
                                     {y, mean, builder.value(kF32, {known(2), known(1)})}});
    builder.output(reads ? mean : y);
    const Status status = Session::create({builder.graph()}).status();
    EXPECT_EQ(status.ok(), !reads);
    if (reads) {
      EXPECT_EQ(status.message(),
                "method 'forward', node 'norm' (aten.native_layer_norm.default): result 1 is not computed; it serves "
                "training");
    }
  }
}

TEST(Session, EndsWhenCancelledOrTooLate) {
  Session session = Session::create({residual_graph()}).value();
  std::vector<float> x(2);
  const std::atomic<bool> cancel = true;
  RunOptions options;
  options.cancel = &cancel;
  EXPECT_EQ(session.run("forward", std::vector{view_of(x, {1, 2})}, options).status().code(), StatusCode::kAborted);
  options.cancel = nullptr;
  options.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(session.run("forward", std::vector{view_of(x, {1, 2})}, options).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(session.run("forward", std::vector{view_of(x, {1, 2})}).ok());
}

TEST(Session, ReportsMemoryBeforeItRuns) {
  GraphBuilder builder;
  const int32_t n = builder.symbol("n", 1, 1024);
  const std::vector<graph::Dim> shape = {symbol(n), known(16)};
  auto x = builder.input("x", kF32, shape);
  // Sines in a chain: each may overwrite the one before; the last is the output.
  for (int i = 0; i < 5; ++i) x = builder.call("aten.sin.default", {ref(x)}, kF32, shape);
  builder.output(x);
  Session session = Session::create({builder.graph()}).value();
  const MemoryReport report = session.memory("forward", {{64, 16}}).value();
  EXPECT_EQ(report.output_bytes, 64 * 16 * 4);
  EXPECT_LE(report.arena_bytes, 64 * 16 * 4) << "one buffer, written over and over";
  EXPECT_EQ(session.output_shapes("forward", {{5, 16}}).value(), (std::vector<std::vector<int64_t>>{{5, 16}}));
}

// count' = count + x: a state that each call changes.
graph::Graph counter(const std::string& name) {
  GraphBuilder builder(name);
  const auto x = builder.input("x", kF32, {known(2)});
  const auto count = builder.value(kF32, {known(2)}, "count");
  const auto sum = builder.call("aten.add.Tensor", {ref(count), ref(x), known(1)}, kF32, {known(2)});
  builder.state("count", count, sum);
  builder.output(sum);
  return builder.graph();
}

TEST(Session, KeepsAStateThatItsMethodsShare) {
  Session session = Session::create({counter("first"), counter("second")}).value();
  std::vector<float> x = {1, 10};
  ASSERT_TRUE(session.run("first", std::vector{view_of(x, {2})}).ok());
  const auto outputs = session.run("second", std::vector{view_of(x, {2})}).value();
  EXPECT_EQ(values_of<float>(outputs[0]), (std::vector<float>{2, 20}));
  EXPECT_EQ(session.state("count").value().data_as<float>()[1], 20);
  session.reset_states();
  EXPECT_EQ(session.state("count").value().data_as<float>()[1], 0);
  EXPECT_EQ(session.state("sum").status().message(), "state 'sum': expected one of 'count'");
}

TEST(Session, SwapsStatesThatReadEachOther) {
  GraphBuilder builder;
  const auto a = builder.value(kF32, {known(1)}, "a");
  const auto b = builder.value(kF32, {known(1)}, "b");
  builder.state("a", a, b);
  builder.state("b", b, a);
  Session session = Session::create({builder.graph()}).value();
  session.state("a").value().data_as<float>()[0] = 1;
  session.state("b").value().data_as<float>()[0] = 2;
  ASSERT_TRUE(session.run("forward", {}).ok());
  EXPECT_EQ(session.state("a").value().data_as<float>()[0], 2);
  EXPECT_EQ(session.state("b").value().data_as<float>()[0], 1);
}

}  // namespace
}  // namespace qx::lite
