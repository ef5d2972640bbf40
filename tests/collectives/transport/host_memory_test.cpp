// The file that the ranks of a host share, and links that begin with a call from the other side.
#include "quincunx/collectives/transport/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "quincunx/collectives/transport/shared_memory.h"

namespace qx::collectives {
namespace {

std::unique_ptr<Segment> map_of(const HostMemory& memory, int rank) {
  auto segment = Segment::map(memory, rank);
  EXPECT_TRUE(segment.ok()) << segment.status().to_string();
  return std::move(*segment);
}

TEST(HostMemory, IsTheSameForAllThatHaveItsDescriptor) {
  const auto own = *HostMemory::create(70);
  const auto peer = HostMemory::adopt(dup(own->descriptor()), 70);
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_FALSE((*peer)->has_joined(69));
  EXPECT_TRUE(own->join(69).ok());
  EXPECT_TRUE((*peer)->has_joined(69));
  EXPECT_FALSE((*peer)->has_joined(68));
  EXPECT_EQ((*peer)->num_joined(), 1);
  const Status second = (*peer)->join(69);
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(second.message().find("as rank 69"), std::string::npos);
}

TEST(HostMemory, TellsWhoHasLeft) {
  const auto own = *HostMemory::create(3);
  const auto peer = *HostMemory::adopt(dup(own->descriptor()), 3);
  ASSERT_TRUE(own->join(2).ok());
  EXPECT_FALSE(peer->has_left(2));
  own->leave(2);
  EXPECT_TRUE(peer->has_left(2));
  EXPECT_FALSE(peer->has_left(1));
  EXPECT_TRUE(peer->has_joined(2));
  EXPECT_EQ(peer->process_of(2), getpid());
}

TEST(HostMemory, RefusesOtherFiles) {
  const int noise = memfd_create("noise", MFD_CLOEXEC);
  EXPECT_EQ(HostMemory::adopt(noise, 4).status().code(), StatusCode::kDataLoss);
  const auto own = *HostMemory::create(4);
  EXPECT_EQ(HostMemory::adopt(dup(own->descriptor()), 5).status().code(), StatusCode::kDataLoss);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(HostMemory::adopt(null, 4).status().code(), StatusCode::kDataLoss);
}

TEST(SharedMemoryLink, BeginsWhenThePeerHasCalled) {
  const auto memory = *HostMemory::create(67);
  const auto first = map_of(*memory, 0), last = map_of(*memory, 66);
  SharedMemoryLink to_last(*first, map_of(*memory, 66), 0, 66);
  const std::string text = "through the ring";
  EXPECT_EQ(to_last.write(std::as_bytes(std::span(text))), text.size());
  to_last.flush();
  EXPECT_TRUE(last->take_callers().empty());
  map_of(*memory, 66)->call(0);
  EXPECT_EQ(last->take_callers(), std::vector<int>{0});
  EXPECT_TRUE(last->take_callers().empty());
  SharedMemoryLink to_first(*last, map_of(*memory, 0), 66, 0);
  const auto received = to_first.peek(1);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(received.data()), received.size()), text);
  first->call(66);
  first->call(3);
  EXPECT_EQ(first->take_callers(), (std::vector<int>{3, 66}));
}

TEST(SharedMemoryLink, DropsWhatIsWrittenWhereThePeersSegmentIsGone) {
  const auto memory = *HostMemory::create(2);
  const auto own = map_of(*memory, 0);
  SharedMemoryLink link(*own, nullptr, 0, 1);
  const std::string text(100000, 'x');
  EXPECT_EQ(link.write(std::as_bytes(std::span(text))), text.size());
  link.flush();
  EXPECT_TRUE(link.peek(1).empty());
}

}  // namespace
}  // namespace qx::collectives
