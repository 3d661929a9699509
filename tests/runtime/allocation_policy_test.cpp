// The process's allocation policy: for devices opened after it, refused when it comes too late or makes no sense.
#include "support/host_fixture.h"

namespace mojo::test {
namespace {

class Policy : public HostRuntime {};

TEST_F(Policy, HoldsForDevicesOpenedLater) {
  AllocationPolicy policy;
  policy.power_of_two_steps.fill(1);
  policy.max_split_bytes = std::uint64_t{64} << 20;
  ASSERT_TRUE(set_allocation_policy(policy).ok());
  const DeviceContext ctx(0);
  EXPECT_EQ(ctx.memory_statistics().max_split_size, std::int64_t{64} << 20);
  EXPECT_TRUE(set_allocation_policy(policy).ok()) << "the same again";
}

TEST_F(Policy, ComesTooLateForAnOpenDevice) {
  const DeviceContext ctx(1);
  EXPECT_TRUE(set_allocation_policy({}).ok()) << "no change";
  AllocationPolicy policy;
  policy.max_split_bytes = std::uint64_t{64} << 20;
  const Status status = set_allocation_policy(policy);
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_NE(std::string(status.message()).find("device 1 is already open"), std::string::npos) << status.message();
  EXPECT_EQ(DeviceContext(0).memory_statistics().max_split_size, -1);
}

TEST_F(Policy, IsRefusedOutOfRange) {
  for (const double threshold : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    AllocationPolicy policy;
    policy.garbage_collection_threshold = threshold;
    EXPECT_EQ(set_allocation_policy(policy).code(), StatusCode::invalid_argument) << threshold;
  }
}

}  // namespace
}  // namespace mojo::test
