// A store that rank 0 serves: what it keeps, whom it lets in, and how it waits.
#include "quincunx/collectives/store/network_store.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong{20000};

std::shared_ptr<NetworkStore> open_root(int world_size = 3, const std::string& secret = "") {
  NetworkStore::Options options;
  options.host = "127.0.0.1";
  options.world_size = world_size;
  options.generation = "test";
  options.credentials.secret = Secret(secret);
  auto store = NetworkStore::open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *store;
}

NetworkStore::Options client_options(uint16_t port, int rank = 1, int world_size = 3) {
  NetworkStore::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.rank = rank;
  options.world_size = world_size;
  options.generation = "test";
  return options;
}

std::shared_ptr<NetworkStore> open_client(uint16_t port, int rank = 1) {
  auto store = NetworkStore::open(client_options(port, rank));
  EXPECT_TRUE(store.ok()) << store.status();
  return *store;
}

StoreRequest request(StoreOperation operation, std::vector<std::string> keys, std::vector<std::string> values = {},
                     int64_t number = 0) {
  StoreRequest made;
  made.operation = operation;
  made.keys = std::move(keys);
  made.values = std::move(values);
  made.number = number;
  return made;
}

StoreResponse done(NetworkStore& store, StoreRequest wanted) {
  const auto response = store.call(std::move(wanted), kLong);
  EXPECT_TRUE(response.ok()) << response.status();
  if (!response.ok()) return {};
  EXPECT_EQ(response->code, StatusCode::kOk) << response->error;
  return *response;
}

int num_entries(const char* directory) {
  int count = 0;
  DIR* const list = opendir(directory);
  while (readdir(list) != nullptr) ++count;
  closedir(list);
  return count;
}

uint16_t port_of(const Listener& listener) {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&listener.endpoint.address)->sin_port);
}

uint16_t unused_port() { return port_of(*listen_on("127.0.0.1")); }

// Whoever waits in the store holds it until it has had its turn on a core.
TEST(NetworkStore, ANewStartHasThePortWhileOthersWaitInTheFormerStore) {
  constexpr int kWaiting = 500;
  auto options = client_options(open_root()->port(), 0);
  options.ends_former = true;
  for (int round = 0; round < 20; ++round) {
    auto former = NetworkStore::open(options);
    ASSERT_TRUE(former.ok()) << former.status();
    std::atomic<int> num_there = 0, num_aborted = 0;
    std::vector<std::thread> waiting;
    for (int i = 0; i < kWaiting; ++i) {
      waiting.emplace_back([&] {
        ++num_there;
        if ((*former)->get("never", kLong).status().code() == StatusCode::kAborted) ++num_aborted;
      });
    }
    while (num_there < kWaiting) std::this_thread::yield();
    const auto next = NetworkStore::open(options);
    EXPECT_TRUE(next.ok()) << next.status();
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(num_aborted, kWaiting);
  }
}

TEST(NetworkStore, ServesEveryOperation) {
  const auto root = open_root();
  const auto client = open_client(root->port());
  EXPECT_TRUE(client->set("a", "1").ok());
  EXPECT_EQ(*root->get("a", kLong), "1");
  EXPECT_EQ(done(*root, request(StoreOperation::kAdd, {"a"}, {}, 41)).number, 42);
  EXPECT_EQ(done(*client, request(StoreOperation::kAdd, {"fresh"}, {}, -2)).number, -2);
  EXPECT_EQ(done(*client, request(StoreOperation::kCheck, {"a", "b"})).number, 0);
  EXPECT_EQ(done(*client, request(StoreOperation::kCheck, {"a", "fresh"})).number, 1);
  EXPECT_EQ(done(*client, request(StoreOperation::kCompareSet, {"c"}, {"", "x"})).values[0], "x");
  EXPECT_EQ(done(*client, request(StoreOperation::kCompareSet, {"c"}, {"y", "z"})).values[0], "x");
  EXPECT_EQ(done(*client, request(StoreOperation::kCompareSet, {"c"}, {"x", "z"})).values[0], "z");
  EXPECT_EQ(done(*client, request(StoreOperation::kCompareSet, {"none"}, {"q", "z"})).values[0], "q");
  done(*client, request(StoreOperation::kAppend, {"c"}, {"+"}));
  EXPECT_EQ(*root->get("c", kLong), "z+");
  done(*client, request(StoreOperation::kSet, {"m", "n"}, {std::string("\0\xff", 2), ""}));
  EXPECT_THAT(done(*root, request(StoreOperation::kGet, {"n", "m"})).values,
              ::testing::ElementsAre("", std::string("\0\xff", 2)));
  EXPECT_EQ(done(*root, request(StoreOperation::kNumKeys, {})).number, 5);
  EXPECT_EQ(done(*root, request(StoreOperation::kDelete, {"m"})).number, 1);
  EXPECT_EQ(done(*root, request(StoreOperation::kDelete, {"m"})).number, 0);
  EXPECT_THAT(done(*root, request(StoreOperation::kListKeys, {})).values,
              ::testing::UnorderedElementsAre("a", "c", "fresh", "n"));
  done(*client, request(StoreOperation::kQueuePush, {"q"}, {"first"}));
  done(*client, request(StoreOperation::kQueuePush, {"q"}, {"second"}));
  EXPECT_EQ(done(*root, request(StoreOperation::kQueueLength, {"q"})).number, 2);
  EXPECT_EQ(done(*root, request(StoreOperation::kQueuePop, {"q"}, {}, 1)).values[0], "first");
  EXPECT_EQ(done(*client, request(StoreOperation::kQueuePop, {"q"})).values[0], "second");
  EXPECT_EQ(root->call(request(StoreOperation::kQueuePop, {"q"}), kLong)->code, StatusCode::kNotFound);
  EXPECT_EQ(root->call(request(StoreOperation::kAdd, {"c"}, {}, 1), kLong)->code, StatusCode::kInvalidArgument);
}

TEST(NetworkStore, WaitsForAValueThatComesLater) {
  const auto root = open_root();
  const auto client = open_client(root->port());
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(root->set("late", "value").ok());
    done(*root, request(StoreOperation::kQueuePush, {"q"}, {"element"}));
  });
  EXPECT_EQ(*client->get("late", kLong), "value");
  EXPECT_EQ(done(*client, request(StoreOperation::kQueuePop, {"q"}, {}, 1)).values[0], "element");
  late.join();
}

TEST(NetworkStore, NamesTheKeysThatWereNotSet) {
  const auto root = open_root();
  const auto client = open_client(root->port());
  EXPECT_TRUE(client->set("there", "1").ok());
  const auto response = client->call(request(StoreOperation::kWait, {"there", "x", "y"}), milliseconds(60));
  EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(response.status().message(), HasSubstr("not set: x, y"));
  EXPECT_EQ(*client->get("there", kLong), "1");
}

TEST(NetworkStore, ReachesARootThatStartsLater) {
  const uint16_t port = unused_port();
  const auto client = open_client(port);
  std::shared_ptr<NetworkStore> root;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(80));
    root = *NetworkStore::open(client_options(port, 0));
  });
  EXPECT_TRUE(client->set("a", "1").ok());
  late.join();
  EXPECT_EQ(*root->get("a", kLong), "1");
}

// The port is one of those that the system gives to clients, so that some attempt would get it for its own end.
TEST(NetworkStore, AClientThatWaitsDoesNotTakeTheServersPort) {
  for (int i = 0; i < 20; ++i) {
    const uint16_t port = unused_port();
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c) {
      clients.emplace_back([port] { EXPECT_TRUE(open_client(port)->set("a", "1").ok()); });
    }
    std::this_thread::sleep_for(milliseconds(i % 5));
    const auto root = NetworkStore::open(client_options(port, 0));
    EXPECT_TRUE(root.ok()) << root.status();
    for (auto& client : clients) client.join();
  }
}

TEST(NetworkStore, TellsWhyRankZeroWasNotReached) {
  const auto client = open_client(unused_port());
  const auto value = client->get("a", milliseconds(60));
  EXPECT_EQ(value.status().code(), StatusCode::kUnavailable);  // a key that is not set: kDeadlineExceeded
  EXPECT_THAT(value.status().message(), HasSubstr("store of rank 0 at 127.0.0.1:"));
  EXPECT_THAT(value.status().message(), HasSubstr("Connection refused"));
  const auto response = client->call(request(StoreOperation::kGet, {"a"}), milliseconds(5));
  EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(response.status().message(), HasSubstr("Connection refused"));
}

TEST(NetworkStore, KnocksInEverLongerPausesHoweverShortTheCalls) {
  const Listener silent = std::move(listen_on("127.0.0.1")).value();
  const auto client = open_client(port_of(silent));
  int num_knocks = 0;
  std::atomic<bool> stop = false;
  std::thread door([&] {
    while (!stop) {
      if (accept_from(silent.socket).ok()) ++num_knocks;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const auto end = std::chrono::steady_clock::now() + milliseconds(400);
  while (std::chrono::steady_clock::now() < end) EXPECT_FALSE(client->get("a", milliseconds(1)).ok());
  stop = true;
  door.join();
  EXPECT_GT(num_knocks, 1);
  EXPECT_LT(num_knocks, 100);
}

TEST(NetworkStore, RemembersARefusalWhenTheServerHasGone) {
  auto root = open_root(3, "0123456789abcdef");
  NetworkStore::Options options = client_options(root->port());
  options.credentials.secret = Secret("fedcba9876543210");
  const auto stranger = *NetworkStore::open(options);
  EXPECT_THAT(stranger->get("a", milliseconds(5)).status().message(), HasSubstr("does not hold the same secret"));
  Status at_root;
  for (int i = 0; i < 1000 && at_root.code() != StatusCode::kUnavailable; ++i) {
    at_root = root->get("a", milliseconds(5)).status();
  }
  EXPECT_THAT(at_root.message(), HasSubstr("until now, the last: the peer refused this rank, because it does not"));
  root.reset();
  const Status status = stranger->get("a", milliseconds(200)).status();
  EXPECT_THAT(status.message(), HasSubstr("Connection refused; before that: "));
  EXPECT_THAT(status.message(), HasSubstr("does not hold the same secret"));
}

TEST(NetworkStore, RefusesAPortThatIsTaken) {
  const auto root = open_root();
  const auto second = NetworkStore::open(client_options(root->port(), 0));
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("is taken by another process"));
}

TEST(NetworkStore, RefusesAnAddressOfAnotherMachine) {
  NetworkStore::Options options = client_options(29500, 0);
  options.host = "192.0.2.7";
  const auto store = NetworkStore::open(options);
  EXPECT_EQ(store.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(store.status().message(), HasSubstr("192.0.2.7 is not an address of this machine"));
}

TEST(NetworkStore, ChecksItsOptions) {
  NetworkStore::Options options = client_options(0);
  EXPECT_THAT(NetworkStore::open(options).status().message(), HasSubstr("port: expected 1 to 65535, got 0"));
  options = client_options(1, 3);
  EXPECT_THAT(NetworkStore::open(options).status().message(), HasSubstr("rank: expected 0 to 2, got 3"));
  options = client_options(1, 0, 0);
  EXPECT_THAT(NetworkStore::open(options).status().message(), HasSubstr("world_size: must be positive, got 0"));
  options = client_options(1);
  options.host = "";
  EXPECT_THAT(NetworkStore::open(options).status().message(), HasSubstr("host: expected"));
  options.host = "0.0.0.0";
  EXPECT_THAT(NetworkStore::open(options).status().message(), HasSubstr("got 0.0.0.0"));
}

TEST(NetworkStore, ANameIsLookedUpInTheBackground) {
  NetworkStore::Options options = client_options(29500);
  options.host = "no-such-host.invalid";
  const auto store = NetworkStore::open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto value = (*store)->get("a", milliseconds(15000));
  EXPECT_THAT(value.status().message(), HasSubstr("no-such-host.invalid"));
}

TEST(NetworkStore, ServesAtTheNameOfThisMachine) {
  NetworkStore::Options options = client_options(unused_port(), 0);
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  options.host = name;
  const auto root = NetworkStore::open(options);
  ASSERT_TRUE(root.ok()) << root.status();
  const Status status = (*root)->set("a", "1");
  if (status.code() == StatusCode::kUnavailable) GTEST_SKIP() << status;  // a machine without that name
  options.rank = 1;
  const auto client = NetworkStore::open(options);
  EXPECT_EQ(*(*client)->get("a", kLong), "1");
}

TEST(NetworkStore, KeepsOutWhoHasAnotherSecretOrJob) {
  const auto root = open_root(3, "0123456789abcdef");
  NetworkStore::Options options = client_options(root->port());
  options.credentials.secret = Secret("fedcba9876543210");
  const auto stranger = *NetworkStore::open(options);
  EXPECT_FALSE(stranger->get("a", milliseconds(50)).ok());
  options.credentials.secret = Secret("0123456789abcdef");
  EXPECT_TRUE((*NetworkStore::open(options))->set("a", "1").ok());
  options.world_size = 4;
  EXPECT_FALSE((*NetworkStore::open(options))->get("a", milliseconds(50)).ok());
  options.world_size = 3;
  options.generation = "another start";
  EXPECT_FALSE((*NetworkStore::open(options))->get("a", milliseconds(50)).ok());
}

TEST(NetworkStore, ClosesIdleConnectionsAndTakesThemUpAgain) {
  const auto root = open_root();
  std::vector<std::shared_ptr<NetworkStore>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(open_client(root->port()));
    EXPECT_TRUE(clients.back()->set("k" + std::to_string(i), "v").ok());
  }
  EXPECT_GT(root->num_served_connections(), 0u);
  for (int i = 0; i < 400 && root->num_served_connections() > 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(root->num_served_connections(), 0u);
  for (auto& client : clients)
    EXPECT_EQ(done(*client, request(StoreOperation::kAdd, {"sum"}, {}, 1)).code, StatusCode::kOk);
  EXPECT_EQ(*root->get("sum", kLong), "8");
}

TEST(NetworkStore, CarriesOutAnAdditionOnceHoweverCrowdedTheServerIs) {
  NetworkStore::Options options = client_options(unused_port(), 0);
  options.max_served_connections = 2;  // connections are taken from each other all the time
  const auto root = *NetworkStore::open(options);
  constexpr int kThreads = 6, kAdditions = 20;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto store = open_client(options.port);
      for (int i = 0; i < kAdditions; ++i) done(*store, request(StoreOperation::kAdd, {"sum"}, {}, 1));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*root->get("sum", kLong), std::to_string(kThreads * kAdditions));
}

TEST(NetworkStore, CancelWakesWhoeverWaits) {
  const auto root = open_root();
  const auto client = open_client(root->port());
  std::thread waiter([&] { EXPECT_EQ(client->get("never", kLong).status().code(), StatusCode::kAborted); });
  std::this_thread::sleep_for(milliseconds(50));
  client->cancel();
  waiter.join();
  EXPECT_EQ(client->set("a", "1").code(), StatusCode::kAborted);
}

TEST(NetworkStore, LeavesNoThreadAndNoDescriptor) {
  static_cast<void>(open_root()->set("warm", "up"));
  const int descriptors = num_entries("/proc/self/fd");
  const int threads = num_entries("/proc/self/task");
  {
    const auto root = open_root();
    const auto client = open_client(root->port());
    EXPECT_TRUE(client->set("a", "1").ok());
  }
  EXPECT_EQ(num_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(num_entries("/proc/self/task"), threads);
}

TEST(NetworkStore, AForkedChildHoldsNothingOfIt) {
  auto root = open_root();
  const uint16_t port = root->port();
  EXPECT_TRUE(root->set("a", "1").ok());
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t child = fork();
  if (child == 0) {
    const char refused = root->set("a", "2").code() == StatusCode::kFailedPrecondition;
    root.reset();
    static_cast<void>(!write(report[1], &refused, 1));
    pause();
  }
  char refused = 0;
  EXPECT_EQ(read(report[0], &refused, 1), 1);
  EXPECT_TRUE(refused);
  for (const int end : report) close(end);
  EXPECT_EQ(*root->get("a", kLong), "1");
  root.reset();
  // The port is free although the child lives.
  const auto again = NetworkStore::open(client_options(port, 0));
  EXPECT_TRUE(again.ok()) << again.status();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Whatever the threads of the parent are in the middle of.
TEST(NetworkStore, ForksWhileItsThreadsWork) {
  const auto root = open_root();
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    while (!stop) static_cast<void>(root->num_served_connections());
  });
  busy.emplace_back([&] {
    while (!stop) static_cast<void>(open_client(root->port())->set("a", "1"));
  });
  for (int i = 0; i < 60; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      root->cancel();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    if (!WIFEXITED(status)) break;
  }
  stop = true;
  for (auto& thread : busy) thread.join();
}

TEST(NetworkStore, WaitsHoweverLongItIsAllowedTo) {
  const auto root = open_root();
  const auto client = open_client(root->port());
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_TRUE(root->set("a", "1").ok());
  });
  const auto value = client->get("a", milliseconds::max());
  late.join();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, "1");
}

TEST(NetworkStore, ASecondStartIsNotMistakenForTheFirst) {
  const uint16_t port = unused_port();
  NetworkStore::Options options = client_options(port, 0);
  options.generation = "";
  auto first_root = *NetworkStore::open(options);
  options.rank = 1;
  auto first_client = *NetworkStore::open(options);
  EXPECT_TRUE(first_root->set("a", "old").ok());
  EXPECT_EQ(*first_client->get("a", kLong), "old");
  first_client.reset();
  const auto second_client = *NetworkStore::open(options);  // before the first server has gone
  EXPECT_FALSE(second_client->get("a", milliseconds(50)).ok());
  first_root.reset();
  options.rank = 0;
  const auto second_root = *NetworkStore::open(options);
  EXPECT_TRUE(second_root->set("a", "new").ok());
  EXPECT_EQ(*second_client->get("a", kLong), "new");
}

}  // namespace
}  // namespace qx::collectives
