// Whole jobs whose ranks have certificates.
#include <gtest/gtest.h>

#include "tests/collectives/ranks.h"
#include "tests/collectives/security/authority.h"

namespace qx::collectives {
namespace {

using testing::Authority;
using testing::Directory;
using testing::Job;
using testing::require;
using testing::require_contains;
using testing::require_ok;

void use(const TlsContext::Files& files) {
  setenv("QX_MCCL_TLS_CERT", files.certificate.c_str(), 1);
  setenv("QX_MCCL_TLS_KEY", files.key.c_str(), 1);
  setenv("QX_MCCL_TLS_CA", files.authority.c_str(), 1);
}

class TlsJob : public ::testing::Test {
 protected:
  const Directory directory_;
  const Authority authority_{directory_.path(), "job"};
};

TEST_F(TlsJob, CarriesCollectivesOfEverySize) {
  const TlsContext::Files members[] = {authority_.member("zero"), authority_.member("one")};
  testing::run_processes({.world_size = 2, .shared_memory = false}, [&](const Job& job, int rank) {
    use(members[rank]);
    const auto group = testing::connect(job, rank);
    // One record of TLS holds 16 KiB.
    for (const int count : {1, 4096, 4097, 300'001}) {
      std::vector<float> values(static_cast<size_t>(count));
      for (int i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 1000 + rank);
      require_ok(group->all_reduce(testing::buffer_of(values, DType::kFloat32), {})->wait());
      for (int i = 0; i < count; ++i) {
        const auto sum = static_cast<float>(2 * (i % 1000) + 1);
        require(values[static_cast<size_t>(i)] == sum, "element " + std::to_string(i) + " of " + std::to_string(count));
      }
    }
    require_ok(group->barrier()->wait());
    require(group->statistics_json().find("\"tls_peers\": 1") != std::string::npos, group->statistics_json());
  });
}

TEST_F(TlsJob, ShutsOutARankOfAnotherAuthority) {
  const Authority other(directory_.path(), "other");
  const TlsContext::Files members[] = {authority_.member("zero"), other.member("one")};
  testing::run_processes({.world_size = 2, .shared_memory = false}, [&](const Job& job, int rank) {
    use(members[rank]);
    const auto group = testing::connect(job, rank);
    const int peer = 1 - rank;
    require_contains(group->barrier(testing::milliseconds(1500))->wait(), StatusCode::kDeadlineExceeded,
                     {"rank " + std::to_string(peer) + " (not connected"});
  });
}

}  // namespace
}  // namespace qx::collectives
