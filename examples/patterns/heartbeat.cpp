// heartbeat: a worker beats every 100 ms; its watcher notices when it does not.
//
// Run it:     build/release/examples/patterns/heartbeat
// It prints:  the beats, the alarm while the worker is stuck, and how many beats
//             it missed. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdint>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

struct beat {
  int number;
  std::uint64_t missed;  // so far
};

void work(const vigil::sender<beat>& beats) {
  //! [ticker]
  vigil::ticker due(100ms);
  for (int number = 1; number <= 5; ++number) {
    due.channel().recv();
    beats.send({number, due.missed()});
    if (number == 2) vigil::sleep_for(350ms);  // stuck: ticks pile up into one
  }
  //! [ticker]
  beats.close();
}

void watch(const vigil::receiver<beat>& beats) {
  const auto start = vigil::clock::now();
  const auto now = [start] { return static_cast<int>((vigil::clock::now() - start) / 1ms); };
  for (;;) {
    auto heard = beats.recv_for(250ms);
    if (heard.is_closed()) break;
    if (heard) {
      std::printf("%3d ms: beat %d, missed %d\n", now(), heard->number, int(heard->missed));
    } else {
      std::printf("%3d ms: no beat for 250 ms\n", now());
    }
  }
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    auto beats = vigil::make_channel<beat>();
    auto worker = vigil::spawn(work, vigil::sender<beat>(beats));
    watch(beats);
    worker.join();
  });
}
