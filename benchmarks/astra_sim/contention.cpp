// Jobs that share the up-links of two leaf switches, in ASTRA-sim's congestion-aware analytical network.
//
// Each job is a ring all-reduce over eight nodes, four below each leaf; so one hop of its ring leaves each leaf. Every
// rank sends size/8 to the next rank in 14 steps, in packets; a packet of one step may be sent on once it has come.
// Prints CSV: jobs, uplink_GBps, seconds of each job if it runs alone, seconds of the last one if all run at once.
//
// Build and run, with ASTRANET the root of github.com/astra-sim/astra-network-analytical (MIT) at 599a047:
//   g++ -std=c++17 -O2 -I$ASTRANET/include -I$ASTRANET/include/astra-network-analytical contention.cpp
//       $ASTRANET/common/NetworkFunction.cpp $ASTRANET/common/event-queue/*.cpp
//       $ASTRANET/congestion_aware/network/*.cpp $ASTRANET/congestion_aware/topology/Topology.cpp -o contention
//   ./contention

#include "common/EventQueue.h"
#include "congestion_aware/Chunk.h"
#include "congestion_aware/Device.h"
#include "congestion_aware/Topology.h"
#include <cstdio>
#include <memory>
#include <vector>

using namespace NetworkAnalytical;
using namespace NetworkAnalyticalCongestionAware;

namespace {

constexpr int ranks = 8;
constexpr int steps = 2 * (ranks - 1);
constexpr int packets = 64;
constexpr double nic_GBps = 50.0;
constexpr double latency_ns = 500.0;
constexpr ChunkSize size_bytes = 1ULL << 30;
constexpr ChunkSize packet_bytes = size_bytes / ranks / packets;
constexpr double GB_in_GiB = 1e9 / (1ULL << 30);  // ASTRA-sim's GB/s are GiB/s

// Nodes 0..n-1 below leaf 0, n..2n-1 below leaf 1, then leaf 0, leaf 1 and the spine.
class TwoLeaves final : public Topology {
  public:
    TwoLeaves(const int nodes_of_leaf, const double uplink_GBps) : nodes_of_leaf(nodes_of_leaf) {
        npus_count = 2 * nodes_of_leaf;
        devices_count = npus_count + 3;
        dims_count = 1;
        instantiate_devices();
        for (auto node = 0; node < npus_count; node++) {
            connect(node, leaf_of(node), nic_GBps * GB_in_GiB, latency_ns);
        }
        for (auto leaf = 0; leaf < 2; leaf++) {
            connect(npus_count + leaf, npus_count + 2, uplink_GBps * GB_in_GiB, latency_ns);
        }
    }

    [[nodiscard]] Route route(const DeviceId src, const DeviceId dest) const noexcept override {
        auto route = Route{devices[src], devices[leaf_of(src)]};
        if (leaf_of(src) != leaf_of(dest)) {
            route.push_back(devices[npus_count + 2]);
            route.push_back(devices[leaf_of(dest)]);
        }
        route.push_back(devices[dest]);
        return route;
    }

  private:
    int nodes_of_leaf;
    [[nodiscard]] int leaf_of(const int node) const noexcept { return npus_count + node / nodes_of_leaf; }
};

struct Hop;

struct Run {
    std::shared_ptr<EventQueue> queue = std::make_shared<EventQueue>();
    std::unique_ptr<TwoLeaves> network;
    std::vector<std::unique_ptr<Hop>> hops;
    EventTime last_ns = 0;
};

struct Hop {
    Run* run;
    int job, rank, step;
};

int node_of(const int job, const int rank, const int nodes_of_leaf) {
    const auto half = ranks / 2;
    return rank < half ? job * half + rank : nodes_of_leaf + job * half + rank - half;
}

void arrived(void* argument);

void send(Run& run, const int job, const int rank, const int step, const int nodes_of_leaf) {
    run.hops.push_back(std::make_unique<Hop>(Hop{&run, job, rank, step}));
    auto route = run.network->route(node_of(job, rank, nodes_of_leaf), node_of(job, (rank + 1) % ranks, nodes_of_leaf));
    run.network->send(std::make_unique<Chunk>(packet_bytes, route, arrived, run.hops.back().get()));
}

void arrived(void* const argument) {
    const auto hop = *static_cast<Hop*>(argument);
    auto& run = *hop.run;
    run.last_ns = run.queue->get_current_time();
    if (hop.step + 1 < steps) {
        send(run, hop.job, (hop.rank + 1) % ranks, hop.step + 1, run.network->get_npus_count() / 2);
    }
}

double seconds(const int jobs, const int nodes_of_leaf, const double uplink_GBps) {
    Run run;
    Topology::set_event_queue(run.queue);
    run.network = std::make_unique<TwoLeaves>(nodes_of_leaf, uplink_GBps);
    for (auto packet = 0; packet < packets; packet++) {
        for (auto job = 0; job < jobs; job++) {
            for (auto rank = 0; rank < ranks; rank++) {
                send(run, job, rank, 0, nodes_of_leaf);
            }
        }
    }
    while (!run.queue->finished()) {
        run.queue->proceed();
    }
    return static_cast<double>(run.last_ns) / 1e9;
}

}  // namespace

int main() {
    std::printf("jobs,uplink_GBps,alone_s,together_s\n");
    for (const auto uplink_GBps : {50.0, 75.0, 100.0, 200.0}) {
        for (const auto jobs : {1, 2, 3, 4}) {
            const auto nodes_of_leaf = jobs * ranks / 2;
            const auto alone_s = seconds(1, nodes_of_leaf, uplink_GBps);
            std::printf("%d,%g,%.6f,%.6f\n", jobs, uplink_GBps, alone_s, seconds(jobs, nodes_of_leaf, uplink_GBps));
        }
    }
    return 0;
}
