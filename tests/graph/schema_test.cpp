#include "quincunx/graph/schema.h"

#include <gtest/gtest.h>

namespace qx::graph {
namespace {

TEST(Schema, FindsOperators) {
  const OperatorSchema* add = find_schema("aten.add.Tensor");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->find("alpha"), 2);
  EXPECT_EQ(add->find("beta"), -1);
  EXPECT_EQ(add->arguments[2].kind, ArgumentKind::kScalar);
  EXPECT_EQ(add->results.size(), 1u);
  EXPECT_EQ(find_schema("aten.add"), nullptr);
  EXPECT_EQ(find_schema(""), nullptr);
  EXPECT_EQ(find_schema("zzz"), nullptr);
}

TEST(Schema, FindsEveryRow) {
  EXPECT_GT(schemas().size(), 200u);
  for (const OperatorSchema& schema : schemas()) EXPECT_EQ(find_schema(schema.name), &schema) << schema.name;
}

TEST(Schema, KnowsListsAndOptionals) {
  const OperatorSchema* index = find_schema("aten.index.Tensor");
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(kind_text(index->arguments[1]), "Tensor?[]");
  const OperatorSchema* sum = find_schema("aten.sum.dim_IntList");
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(kind_text(sum->arguments[1]), "int[]?");
  const OperatorSchema* split = find_schema("aten.split.Tensor");
  ASSERT_NE(split, nullptr);
  EXPECT_EQ(split->results, std::vector{ArgumentKind::kTensorList});
}

TEST(Schema, AcceptsWhatTheKindSays) {
  const ArgumentSchema tensor{.name = "x", .kind = ArgumentKind::kTensor};
  EXPECT_TRUE(accepts(tensor, TensorRef{0}));
  EXPECT_FALSE(accepts(tensor, TensorRef{}));
  EXPECT_FALSE(accepts(tensor, std::monostate{}));
  EXPECT_TRUE(accepts(tensor, 0.5));
  EXPECT_FALSE(accepts(tensor, std::string("x")));
  const ArgumentSchema list{.name = "x", .kind = ArgumentKind::kTensorList};
  EXPECT_TRUE(accepts(list, std::vector<TensorRef>{}));
  EXPECT_FALSE(accepts(list, std::vector<TensorRef>{{}}));
  const ArgumentSchema holes{.name = "x", .kind = ArgumentKind::kTensorList, .optional_elements = true};
  EXPECT_TRUE(accepts(holes, std::vector<TensorRef>{{}}));
  const ArgumentSchema scalar{.name = "x", .kind = ArgumentKind::kScalar, .optional = true};
  EXPECT_TRUE(accepts(scalar, std::monostate{}));
  EXPECT_TRUE(accepts(scalar, true));
  EXPECT_TRUE(accepts(scalar, Dim{3}));
  EXPECT_TRUE(accepts(scalar, 0.5));
  EXPECT_FALSE(accepts(scalar, std::string("3")));
  EXPECT_FALSE(accepts({.name = "x", .kind = ArgumentKind::kInt}, 3.0));
  EXPECT_FALSE(accepts({.name = "x", .kind = ArgumentKind::kFloat}, Dim{3}));
}

}  // namespace
}  // namespace qx::graph
