#include "quincunx/base/fnv1a.h"

#include <gtest/gtest.h>

namespace qx {
namespace {

// From the test suite of the hash's authors (http://www.isthe.com/chongo/src/fnv/test_fnv.c).
TEST(Fnv1a, HasThePublishedValues) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
}

TEST(Fnv1a, TakesBytesAsUnsigned) { EXPECT_EQ(fnv1a("\xff"), 0xaf64724c8602eb6eu); }

TEST(Fnv1a, GoesOnFromAnEarlierHash) { EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar")); }

}  // namespace
}  // namespace qx
