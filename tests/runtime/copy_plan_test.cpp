// The copy table, row by row, as plans.
#include <gtest/gtest.h>

#include "mojo/copy_plan.h"

namespace mojo {
namespace {

CopyRequest request(CopyDirection direction, bool pinned, bool non_blocking, std::uint64_t bytes = 4096) {
  CopyRequest r;
  r.direction = direction;
  r.pinned = pinned;
  r.non_blocking = non_blocking;
  r.bytes = bytes;
  r.staging_bytes = 1 << 20;
  return r;
}
constexpr auto up = CopyDirection::host_to_device;
constexpr auto down = CopyDirection::device_to_host;

TEST(CopyPlan, UploadPinnedNonBlockingReadsTheSourceWhenItRuns) {  // C-01
  const CopyPlan plan = plan_copy(request(up, true, true));
  EXPECT_EQ(plan, (CopyPlan{CopyConversion::none, CopyTransport::direct, HostBlocks::no, true}));
}

TEST(CopyPlan, UploadPageableIsStaged) {  // C-02
  EXPECT_EQ(plan_copy(request(up, false, true)),
            (CopyPlan{CopyConversion::none, CopyTransport::staged, HostBlocks::no, false}));
  EXPECT_EQ(plan_copy(request(up, false, true, 1 << 20)).transport, CopyTransport::staged);
  const CopyPlan large = plan_copy(request(up, false, true, (1 << 20) + 1));
  EXPECT_EQ(large.transport, CopyTransport::staged_in_parts);
  EXPECT_EQ(large.blocks, HostBlocks::until_staged);
}

TEST(CopyPlan, DownloadPinnedNonBlockingIsQueued) {  // C-03
  EXPECT_EQ(plan_copy(request(down, true, true)),
            (CopyPlan{CopyConversion::none, CopyTransport::direct, HostBlocks::no, true}));
}

TEST(CopyPlan, DownloadPageableIsCompleteAtReturn) {  // C-04
  for (const bool non_blocking : {false, true}) {
    EXPECT_EQ(plan_copy(request(down, false, non_blocking)).blocks, HostBlocks::until_complete);
  }
}

TEST(CopyPlan, DownloadThatConverts) {  // C-06
  for (const bool pinned : {false, true}) {
    CopyRequest r = request(down, pinned, true);
    r.same_dtype = false;
    const CopyPlan plan = plan_copy(r);
    EXPECT_EQ(plan.conversion, CopyConversion::on_device_before);
    EXPECT_EQ(plan.blocks, pinned ? HostBlocks::no : HostBlocks::until_complete);
    r.same_dtype = true;
    r.same_layout = false;
    EXPECT_EQ(plan_copy(r).conversion, CopyConversion::on_device_before);
  }
}

TEST(CopyPlan, BlockingUploadIsStagedEvenFromPinnedMemory) {  // C-07
  for (const bool pinned : {false, true}) {
    EXPECT_EQ(plan_copy(request(up, pinned, false)).transport, CopyTransport::staged);
    EXPECT_EQ(plan_copy(request(up, pinned, false)).blocks, HostBlocks::no);
    EXPECT_EQ(plan_copy(request(up, pinned, false, 2 << 20)).blocks, HostBlocks::until_staged);
    EXPECT_EQ(plan_copy(request(down, pinned, false)).blocks, HostBlocks::until_complete);
  }
}

TEST(CopyPlan, DevicesWithOneQueueUploadBeforeTheyReturn) {
  for (const bool pinned : {false, true}) {
    for (const bool non_blocking : {false, true}) {
      CopyRequest r = request(up, pinned, non_blocking);
      r.device_reads_pinned_copies_async = false;
      EXPECT_EQ(plan_copy(r).blocks, HostBlocks::until_complete);
      EXPECT_EQ(plan_copy(r).transport, CopyTransport::direct);
    }
  }
}

TEST(CopyPlan, PageableDownloadsPassThroughPinnedPartsWhereTheHostCannotReachTheMemory) {  // C-13
  CopyRequest r = request(down, false, false, 2 << 20);
  EXPECT_EQ(plan_copy(r).transport, CopyTransport::staged_in_parts);
  r.host_accessible = true;
  EXPECT_EQ(plan_copy(r).transport, CopyTransport::direct);
}

TEST(CopyPlan, DeviceCopiesNeverBlock) {  // C-12
  for (const auto direction : {CopyDirection::within_device, CopyDirection::between_devices}) {
    EXPECT_EQ(plan_copy(request(direction, false, false)).blocks, HostBlocks::no);
  }
}

TEST(CopyPlan, IsDescribedInOneLine) {
  EXPECT_EQ(describe(plan_copy(request(up, false, true))), "staged, no conversion, does not block");
}

}  // namespace
}  // namespace mojo
