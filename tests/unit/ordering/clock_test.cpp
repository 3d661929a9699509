// The vector clock against a graph of operations that is searched by brute force.
#include "ordering/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unit/ordering/seeds.h"

namespace mojo::ordering {
namespace {

using Entries = std::vector<std::pair<StreamUid, std::uint64_t>>;

Entries entries(const Clock& clock) {
  Entries result;
  for (const Position& p : clock.positions()) result.emplace_back(p.stream, p.sequence);
  return result;
}

TEST(Clock, IsOrderedAfterNothingAtFirst) {
  const Clock clock;
  EXPECT_TRUE(clock.empty());
  EXPECT_TRUE(clock.dominates({7, 0}));
  EXPECT_FALSE(clock.dominates({7, 1}));
  EXPECT_EQ(clock.sequence_of(7), 0u);
}

TEST(Clock, AdvancesAndNeverGoesBack) {
  Clock clock;
  clock.advance(5, 3);
  clock.advance(2, 9);
  clock.advance(5, 2);
  clock.advance(8, 0);
  EXPECT_EQ(entries(clock), (Entries{{2, 9}, {5, 3}}));
  EXPECT_TRUE(clock.dominates({5, 3}));
  EXPECT_FALSE(clock.dominates({5, 4}));
  EXPECT_FALSE(clock.dominates({8, 1}));
}

TEST(Clock, MergeTakesTheLaterOfEach) {
  Clock a, b;
  for (StreamUid s : {1, 3, 5, 7}) a.advance(s, 10u * s);
  for (StreamUid s : {0, 3, 4, 7, 9}) b.advance(s, 20u + s);
  a.merge(b);
  EXPECT_EQ(entries(a), (Entries{{0, 20}, {1, 10}, {3, 30}, {4, 24}, {5, 50}, {7, 70}, {9, 29}}));
  a.merge(a);
  EXPECT_EQ(a.size(), 7u);
  Clock empty;
  empty.merge(a);
  EXPECT_EQ(entries(empty), entries(a));
}

TEST(Clock, CopiesAndMovesAreValues) {
  for (const StreamUid n : {0u, 3u, 4u, 5u, 40u}) {
    Clock clock;
    for (StreamUid s = 1; s <= n; ++s) clock.advance(s, s);
    const Entries before = entries(clock);
    Clock copy(clock);
    copy.advance(1, 1000);
    EXPECT_EQ(entries(clock), before);
    Clock moved(std::move(clock));
    EXPECT_EQ(entries(moved), before);
    EXPECT_TRUE(clock.empty());  // NOLINT(bugprone-use-after-move): a moved-from clock is an empty one
    clock.advance(77, 1);
    clock = moved;
    EXPECT_EQ(entries(clock), before);
    copy = std::move(moved);
    EXPECT_EQ(entries(copy), before);
    Clock& same = copy;
    copy = same;
    EXPECT_EQ(entries(copy), before);
  }
}

bool keeps_entries_inline(const Clock& clock) {
  const auto data = reinterpret_cast<std::uintptr_t>(clock.positions().data());
  const auto self = reinterpret_cast<std::uintptr_t>(&clock);
  return self <= data && data < self + sizeof clock;
}

TEST(Clock, SmallClocksAllocateNothing) {
  Clock a, b;
  for (StreamUid s = 1; s <= Clock::inline_capacity; ++s) a.advance(s, s);
  b.merge(a);
  const Clock c(b);
  a = std::move(b);
  a.merge(c);
  EXPECT_TRUE(keeps_entries_inline(a));
  EXPECT_TRUE(keeps_entries_inline(c));
  a.advance(99, 1);
  EXPECT_FALSE(keeps_entries_inline(a));
}

// A program that makes n streams, each of which the default stream waits for once: the default stream's clock stays small
// and the work is linear, if what it waited for is done by and by.
TEST(Clock, ManyShortLivedStreamsCostLinearWork) {
  constexpr StreamUid streams = 20000;
  Clock main;
  std::size_t asked = 0;
  std::size_t largest = 0;
  for (StreamUid s = 1; s <= streams; ++s) {
    Clock other;
    other.advance(s, 1);
    main.merge(other, [&](Position p) {
      ++asked;
      return p.stream + 3 < s;  // the last few are still running
    });
    largest = std::max(largest, main.size());
  }
  EXPECT_LE(largest, 32u);
  EXPECT_LE(asked, 4u * streams);
}

TEST(Clock, MergeWithoutCompletionsIsPrunedNoMoreThanItGrows) {
  Clock main;
  std::size_t asked = 0;
  constexpr StreamUid streams = 4096;
  for (StreamUid s = 1; s <= streams; ++s) {
    Clock other;
    other.advance(s, 1);
    main.merge(other, [&](Position) {
      ++asked;
      return false;
    });
  }
  EXPECT_EQ(main.size(), streams);
  EXPECT_LE(asked, 3u * streams);
}

// Operations of streams as a graph. Stream 1 is the host: what it has waited for comes before all it enqueues later.
class Graph {
 public:
  struct Node {
    std::vector<Position> before;  // immediate predecessors
  };
  Position add(StreamUid stream) {
    auto& nodes = nodes_[stream];
    nodes.emplace_back();
    if (nodes.size() > 1) nodes.back().before.push_back({stream, nodes.size() - 1});
    return {stream, nodes.size()};
  }
  void add_edge(Position from, Position to) { node(to).before.push_back(from); }
  std::uint64_t last(StreamUid stream) { return nodes_[stream].size(); }
  // All that comes before the next operation of `stream`, the stream's own operations included.
  std::set<std::pair<StreamUid, std::uint64_t>> before_next(StreamUid stream) {
    std::set<std::pair<StreamUid, std::uint64_t>> seen;
    std::vector<Position> open;
    if (last(stream) != 0) open.push_back({stream, last(stream)});
    while (!open.empty()) {
      const Position p = open.back();
      open.pop_back();
      if (!seen.emplace(p.stream, p.sequence).second) continue;
      for (const Position& before : node(p).before) open.push_back(before);
    }
    return seen;
  }
  const Node& at(Position p) { return node(p); }

 private:
  Node& node(Position p) { return nodes_[p.stream][p.sequence - 1]; }
  std::map<StreamUid, std::vector<Node>> nodes_;
};

void compare_with_graph(std::uint64_t seed, bool with_pruning) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr StreamUid host = 1;
  constexpr StreamUid last_stream = 8;
  Graph graph;
  std::map<StreamUid, Clock> clocks;
  std::map<StreamUid, std::uint64_t> completed;
  struct Event {
    Position position;
    Clock clock;
  };
  std::vector<Event> events;
  const auto pick = [&] { return static_cast<StreamUid>(2 + test::below(random, last_stream - 1)); };
  const auto complete = [&](Position p) { return p.sequence <= completed[p.stream]; };
  const auto merge = [&](Clock& into, const Clock& from) {
    if (with_pruning) {
      into.merge(from, complete);
    } else {
      into.merge(from);
    }
  };
  // Every operation is enqueued by the host, which is a stream of its own here.
  const auto enqueue = [&](StreamUid stream) {
    const Position p = graph.add(stream);
    if (graph.last(host) != 0) graph.add_edge({host, graph.last(host)}, p);
    clocks[stream].merge(clocks[host]);
    return p;
  };

  for (int step = 0; step < 2500; ++step) {
    switch (test::below(random, with_pruning ? 8 : 6)) {
      case 0:
      case 1: enqueue(pick()); break;
      case 2: {
        const Position p = enqueue(pick());
        events.push_back({p, clocks[p.stream]});
        break;
      }
      case 3:
      case 4: {
        if (events.empty()) break;
        const Event& event = events[test::below(random, events.size())];
        const Position p = enqueue(pick());
        if (p.stream == event.position.stream) break;
        graph.add_edge(event.position, p);
        merge(clocks[p.stream], event.clock);
        clocks[p.stream].advance(event.position.stream, event.position.sequence);
        break;
      }
      case 5: {
        if (events.empty() || test::below(random, 10) != 0) break;
        const Event& event = events[test::below(random, events.size())];
        const Position p = graph.add(host);
        graph.add_edge(event.position, p);
        clocks[host].advance(host, p.sequence);
        merge(clocks[host], event.clock);
        clocks[host].advance(event.position.stream, event.position.sequence);
        break;
      }
      default: {
        // The next operation of some stream completes, if all before it have.
        const StreamUid stream = static_cast<StreamUid>(1 + test::below(random, last_stream));
        const Position next{stream, completed[stream] + 1};
        if (next.sequence > graph.last(stream)) break;
        const auto& before = graph.at(next).before;
        if (std::all_of(before.begin(), before.end(), complete)) completed[stream] = next.sequence;
        break;
      }
    }
    if (step % 10 != 0) continue;
    const StreamUid stream = pick();
    const auto before = graph.before_next(stream);
    for (StreamUid other = 1; other <= last_stream; ++other) {
      if (other == stream) continue;
      for (std::uint64_t n = 1; n <= graph.last(other); ++n) {
        // The host's own operations order what is enqueued after them: `stream` learns of them at its next one.
        if (other == host) continue;
        const bool ordered = before.count({other, n}) != 0;
        const bool claimed = clocks[stream].dominates({other, n});
        if (with_pruning && complete({other, n})) {
          ASSERT_LE(claimed, ordered) << "step " << step << ": " << stream << " not after " << other << "@" << n;
        } else {
          ASSERT_EQ(claimed, ordered) << "step " << step << ": " << stream << ", " << other << "@" << n;
        }
      }
    }
  }
  if (with_pruning) {
    // With all complete nothing is left.
    for (auto& [stream, clock] : clocks) {
      clock.prune([](Position) { return true; });
      EXPECT_TRUE(clock.empty());
    }
  }
}

TEST(ClockProperty, EqualsTheGraph) {
  for (const std::uint64_t seed : test::seeds()) compare_with_graph(seed, false);
}

TEST(ClockProperty, PrunedClockKeepsAllThatIsNotComplete) {
  for (const std::uint64_t seed : test::seeds()) compare_with_graph(seed, true);
}

}  // namespace
}  // namespace mojo::ordering
