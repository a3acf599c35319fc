// The cost of a receive and of a select, beside the parts that they cannot do without.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

// The operations take turns, so that all see the same machine.
struct operation {
  std::string name;
  std::function<void()> run;  // `rounds` times
  std::vector<double> samples = {};
};

constexpr std::size_t rounds = 1'000;

void in_turn(std::vector<operation>& all, std::size_t repetitions, const auto& prepare) {
  for (std::size_t i = 0; i < repetitions; ++i) {
    for (operation& o : all) {
      prepare();
      const nanos start = thread_cpu_time();
      o.run();
      o.samples.push_back(static_cast<double>(thread_cpu_time() - start) / rounds);
    }
  }
}

operation repeat(std::string name, auto once) {
  return {std::move(name), [once] {
            for (std::size_t i = 0; i < rounds; ++i)
              once();
          }};
}

double of(const std::vector<operation>& all, const std::string& name) {
  for (const operation& o : all) {
    if (o.name == name) return median(o.samples);
  }
  return 0;
}

constexpr auto take = [](std::optional<int> value) { keep(value); };

}  // namespace

void select_ready(report& out) {
  vigil::run(with_workers(1), [&] {
    vigil::spawn([&] {
      const auto c = vigil::make_channel<int>(rounds);
      std::atomic<bool> lock{false};
      std::vector<operation> all = {
          repeat("clock read", [] { keep(vigil::clock::now()); }),
          repeat("new and delete",
                 [] {
                   auto* const p = new char[240];
                   keep(p);
                   delete[] p;
                 }),
          repeat("lock pair",
                 [&lock] {
                   // ordering: as a spinlock.
                   keep(lock.exchange(true, std::memory_order_acquire));
                   lock.store(false, std::memory_order_release);  // ordering: as above
                 }),
          repeat("try_recv", [&c] { keep(c.try_recv()); }),
          repeat("recv_for(1s)", [&c] { keep(c.recv_for(1s)); }),
          repeat("select{recv}", [&c] { vigil::select(vigil::on_recv(c, take)); }),
          repeat("select{recv, on_timeout(1s)}",
                 [&c] { vigil::select(vigil::on_recv(c, take), vigil::on_timeout(1s)); }),
          repeat(
              "select{recv, after(1s)}",
              [&c] { vigil::select(vigil::on_recv(c, take), vigil::on_recv(vigil::after(1s))); }),
      };
      const auto fill = [&c] {
        while (c.try_send(1)) {
        }
      };
      const vigil::runtime_stats before = vigil::stats();
      const std::size_t memory = memory_held();
      in_turn(all, out.is_long() ? 1'001 : 201, fill);
      const vigil::runtime_stats after = vigil::stats();
      const double plain = of(all, "try_recv");
      const double parts =
          of(all, "clock read") + of(all, "new and delete") + 2 * of(all, "lock pair");
      for (const operation& o : all) {
        if (o.name == "select{recv, on_timeout(1s)}") {
          out.compare(o.name, median(o.samples), "ns", 3 * plain, "3 x try_recv");
        } else if (o.name == "select{recv, after(1s)}") {
          out.compare(o.name,
                      median(o.samples),
                      "ns",
                      plain + 1.3 * parts,
                      "try_recv + 1.3 x (clock read, new and delete, two lock pairs)");
        } else {
          out.add(o.name, median(o.samples), "ns");
        }
      }
      out.add("timers armed by all of them",
              static_cast<double>(after.timers_armed - before.timers_armed),
              "");
      out.add("memory that grew",
              static_cast<double>(memory_held()) - static_cast<double>(memory),
              "bytes");
    }).join();
  });
}

// Measures a question and its answer, which is received in several ways. With a place for
// each, both sides wait in their receive, not in a send.
void round_trips(report& out) {
  vigil::run(with_workers(1), [&] {
    vigil::spawn([&] {
      const auto ask = vigil::make_channel<int>(1);
      const auto answer = vigil::make_channel<int>(1);
      auto other = vigil::spawn([&] {
        for (const int question : ask)
          answer.send(question);
      });
      std::vector<operation> all = {
          repeat("clock read", [] { keep(vigil::clock::now()); }),
          repeat("recv",
                 [&] {
                   ask.send(1);
                   keep(answer.recv());
                 }),
          repeat("recv_for(1s)",
                 [&] {
                   ask.send(1);
                   keep(answer.recv_for(1s));
                 }),
          repeat("select{recv, on_timeout(1s)}",
                 [&] {
                   ask.send(1);
                   vigil::select(vigil::on_recv(answer, take), vigil::on_timeout(1s));
                 }),
          repeat("select{recv, after(1s)}",
                 [&] {
                   ask.send(1);
                   vigil::select(vigil::on_recv(answer, take), vigil::on_recv(vigil::after(1s)));
                 }),
      };
      const vigil::runtime_stats before = vigil::stats();
      in_turn(all, out.is_long() ? 1'001 : 201, [] {});
      const vigil::runtime_stats after = vigil::stats();
      const double plain = of(all, "recv");
      for (const operation& o : all) {
        if (o.name == "recv_for(1s)") {
          out.compare(o.name,
                      median(o.samples),
                      "ns",
                      1.3 * (plain + of(all, "clock read")),
                      "1.3 x (recv and a clock read)");
        } else {
          out.add(o.name, median(o.samples), "ns");
        }
      }
      const auto timed = static_cast<double>(rounds * all[2].samples.size() * 3);
      out.add("heap entries when done", static_cast<double>(after.heap_entries), "");
      out.add("timers armed for each timed round",
              static_cast<double>(after.timers_armed - before.timers_armed) / timed,
              "");
      ask.close();
      other.join();
    }).join();
  });
}

}  // namespace bench
