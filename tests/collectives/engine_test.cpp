// Links that come when the first frame needs them.
#include "quincunx/collectives/engine.h"

#include <gtest/gtest.h>

#include "collectives/scripted_link.h"

namespace qx::collectives {
namespace {

class RecordingProvider : public LinkProvider {
 public:
  void want(int rank) override { wanted.push_back(rank); }
  void look() override { ++looks; }
  std::vector<int> wanted;
  int looks = 0;
};

FrameHeader fail_frame() {
  FrameHeader header;
  header.kind = FrameKind::kFail;
  header.group = 1;
  header.status_code = static_cast<uint8_t>(StatusCode::kAborted);
  return header;
}

TEST(Engine, AsksForALinkOnceAndSendsThroughItWhatWaited) {
  RecordingProvider provider;
  const auto engine = std::make_shared<Engine>(0, 3);
  Engine::Guard guard(*engine);
  engine->use_links(provider);
  engine->post(1, fail_frame(), {});
  EXPECT_TRUE(provider.wanted.empty()) << "asked for a link to a rank that is not known to be there";
  engine->set_present(1);
  EXPECT_EQ(engine->peer_state(1), Engine::PeerState::kUp);
  EXPECT_EQ(engine->transport_of(1), "none");
  engine->post(1, fail_frame(), {});
  engine->post(1, fail_frame(), {});
  engine->post(0, fail_frame(), {});
  EXPECT_EQ(provider.wanted, std::vector<int>{1});
  EXPECT_TRUE(engine->has_unsent());
  auto link = std::make_unique<ScriptedLink>();
  ScriptedLink* wire = link.get();
  engine->attach_link(1, std::move(link));
  engine->flush();
  EXPECT_EQ(wire->take_written().size(), 2 * kHeaderBytes);
  EXPECT_FALSE(engine->has_unsent());
  engine->want_link(1);
  EXPECT_EQ(provider.wanted.size(), 1u);
}

TEST(Engine, LooksForLinksOfPeersWithEveryLook) {
  RecordingProvider provider;
  const auto engine = std::make_shared<Engine>(0, 2);
  Engine::Guard guard(*engine);
  engine->use_links(provider);
  EXPECT_FALSE(engine->poll());
  engine->lose_peer(1, "died");
  EXPECT_EQ(provider.looks, 2);
}

TEST(Engine, SendsNothingToAPeerThatIsLost) {
  RecordingProvider provider;
  const auto engine = std::make_shared<Engine>(0, 2);
  Engine::Guard guard(*engine);
  engine->use_links(provider);
  engine->set_present(1);
  engine->lose_peer(1, "died");
  engine->post(1, fail_frame(), {});
  EXPECT_TRUE(provider.wanted.empty());
  EXPECT_FALSE(engine->has_unsent());
}

}  // namespace
}  // namespace qx::collectives
