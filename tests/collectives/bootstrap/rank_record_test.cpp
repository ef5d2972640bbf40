#include "quincunx/collectives/bootstrap/rank_record.h"

#include <gtest/gtest.h>

namespace qx::collectives {
namespace {

RankRecord record(int rank, int world_size, const std::string& host = "host-a") {
  RankRecord result;
  result.rank = rank;
  result.world_size = world_size;
  result.boot_id = host;
  result.network_namespace = "net:[1]";
  result.pid = 100 + rank;
  result.loopback_endpoints = {"127.0.0.1:5000"};
  result.external_endpoints = {"10.0.0.1:6000", "[fd00::1]:6001"};
  result.token = std::string(31, 'a') + std::to_string(rank);
  return result;
}

TEST(RankRecord, SurvivesEncoding) {
  RankRecord before = record(3, 8);
  before.takes_external = true;
  const auto after = RankRecord::decode(before.encode());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->encode(), before.encode());
  EXPECT_EQ(after->external_endpoints, before.external_endpoints);
  EXPECT_TRUE(after->takes_external);
  before.external_endpoints.clear();
  EXPECT_TRUE(RankRecord::decode(before.encode())->external_endpoints.empty());
}

TEST(RankRecord, RefusesWhatIsNone) {
  const std::string letters = "qx2|a|2|h|n|1|e|f|0|" + std::string(32, 't');
  for (const std::string& text : {std::string(), std::string("x"), std::string(100, '|'), record(0, 1).encode() + "|",
                                  record(5, 2).encode(), letters}) {
    EXPECT_EQ(RankRecord::decode(text).status().code(), StatusCode::kDataLoss) << text;
  }
}

TEST(RankRecord, OffersLoopbackToItsOwnNamespaceOnly) {
  const RankRecord own = record(0, 2);
  EXPECT_EQ(own.endpoints_for(record(1, 2)),
            (std::vector<std::string>{"127.0.0.1:5000", "10.0.0.1:6000", "[fd00::1]:6001"}));
  EXPECT_EQ(own.endpoints_for(record(1, 2, "host-b")), own.external_endpoints);
  RankRecord container = record(1, 2);
  container.network_namespace = "net:[2]";
  EXPECT_EQ(own.endpoints_for(container), own.external_endpoints);
}

}  // namespace
}  // namespace qx::collectives
