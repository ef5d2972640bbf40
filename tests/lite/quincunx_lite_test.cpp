#include "quincunx/lite/quincunx_lite.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lite/graph_builder.h"
#include "quincunx/graph/qxm.h"

namespace qx::lite {
namespace {

// y = x + x over [n, 2], in a file.
class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    GraphBuilder builder("double");
    const int32_t n = builder.symbol("n", 1, 8);
    const auto x = builder.input("x", DType::kFloat32, {symbol(n), known(2)});
    builder.output(builder.call("aten.add.Tensor", {ref(x), ref(x), known(1)}, DType::kFloat32, {symbol(n), known(2)}));
    path_ = (std::filesystem::temp_directory_path() / ("qx_c_interface_" + std::to_string(getpid()) + ".qxm")).string();
    graph::Qxm model;
    model.methods = {builder.graph()};
    ASSERT_TRUE(graph::write_qxm(path_, model).ok());
    ASSERT_EQ(qx_session_load(path_.c_str(), 1, &session_), QX_OK) << qx_last_error();
  }
  void TearDown() override {
    qx_session_free(session_);
    std::filesystem::remove(path_);
  }

  std::string path_;
  qx_session* session_ = nullptr;
};

DLTensor tensor_of(std::vector<float>& values, std::vector<int64_t>& shape) {
  DLTensor tensor = {};
  tensor.data = values.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int>(shape.size());
  tensor.dtype = {kDLFloat, 32, 1};
  tensor.shape = shape.data();
  return tensor;
}

TEST_F(CInterface, RunsAMethodOfAFile) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(6);
  std::vector<int64_t> shape = {3, 2};
  const DLTensor input = tensor_of(x, shape), output = tensor_of(y, shape);
  ASSERT_EQ(qx_session_run(session_, "double", &input, 1, &output, 1), QX_OK) << qx_last_error();
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(qx_session_reset_states(session_), QX_OK);
}

TEST_F(CInterface, NamesMethodsInputsAndShapes) {
  const char* name = nullptr;
  ASSERT_EQ(qx_session_num_methods(session_), 1);
  ASSERT_EQ(qx_session_method_name(session_, 0, &name), QX_OK);
  EXPECT_STREQ(name, "double");
  ASSERT_EQ(qx_session_input_name(session_, "double", 0, &name), QX_OK);
  EXPECT_STREQ(name, "x");
  ASSERT_EQ(qx_session_output_name(session_, "double", 0, &name), QX_OK);
  int64_t count = 0;
  ASSERT_EQ(qx_session_num_inputs(session_, "double", &count), QX_OK);
  EXPECT_EQ(count, 1);
  ASSERT_EQ(qx_session_num_outputs(session_, "double", &count), QX_OK);
  EXPECT_EQ(count, 1);
  std::vector<float> x(10);
  std::vector<int64_t> shape = {5, 2};
  const DLTensor input = tensor_of(x, shape);
  int64_t result[8];
  int num_dims = 0;
  ASSERT_EQ(qx_session_output_shape(session_, "double", &input, 1, 0, result, &num_dims), QX_OK);
  ASSERT_EQ(num_dims, 2);
  EXPECT_EQ(result[0], 5);
  EXPECT_EQ(result[1], 2);
}

TEST_F(CInterface, SaysWhatIsWrong) {
  std::vector<float> x(18);
  std::vector<int64_t> shape = {9, 2};
  const DLTensor input = tensor_of(x, shape);
  EXPECT_EQ(qx_session_run(session_, "double", &input, 1, &input, 1), QX_INVALID_ARGUMENT);
  EXPECT_STREQ(qx_last_error(), "input 'x': expected float32[n, 2], got [9, 2]: n must be 1 to 8");
  EXPECT_EQ(qx_session_run(session_, "double", nullptr, 1, nullptr, 0), QX_INVALID_ARGUMENT);
  EXPECT_STREQ(qx_last_error(), "inputs: null pointer");
  EXPECT_EQ(qx_session_run(session_, "half", &input, 1, nullptr, 0), QX_NOT_FOUND);
  EXPECT_EQ(qx_session_run(nullptr, "double", &input, 1, nullptr, 0), QX_INVALID_ARGUMENT);
  const char* name = nullptr;
  EXPECT_EQ(qx_session_input_name(session_, "double", 1, &name), QX_INVALID_ARGUMENT);
  EXPECT_STREQ(qx_last_error(), "index: expected less than 1, got 1");
  qx_session* other = nullptr;
  EXPECT_NE(qx_session_load("/nonexistent/model.qxm", 0, &other), QX_OK);
  EXPECT_NE(std::string(qx_last_error()).find("/nonexistent/model.qxm"), std::string::npos);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(qx_session_load(path_.c_str(), -1, &other), QX_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace qx::lite
