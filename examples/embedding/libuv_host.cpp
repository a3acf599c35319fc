// libuv_host: fibers inside the loop of libuv, whose timers and handles run beside them.
//
// Run:     build/release/examples/embedding/libuv_host
#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

#include <uv.h>

using namespace std::chrono_literals;

namespace {

vigil::channel<int> beats = vigil::make_channel<int>(16);

// A fiber that waits for what libuv's own timer sends.
void hear_beats() {
  for (int i = 0; i < 3; ++i)
    std::printf("beat %d\n", *beats.recv());
  vigil::sleep_for(10ms);
  std::puts("listened");
}

void beat(uv_timer_t* timer) {
  static int n = 0;
  static_cast<void>(beats.try_send(++n));
  if (n == 3) uv_close(reinterpret_cast<uv_handle_t*>(timer), nullptr);
}

}  // namespace

int main() {
  uv_loop_t* const loop = uv_default_loop();
  vigil::guest_runtime guest;

  //! [libuv]
  uv_poll_t ready;
  uv_poll_init(loop, &ready, guest.descriptor());
  ready.data = &guest;
  uv_poll_start(&ready, UV_READABLE, [](uv_poll_t* handle, int, int) {
    if (!static_cast<vigil::guest_runtime*>(handle->data)->poll()) {
      uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);  // the run has ended
    }
  });
  guest.start(hear_beats);
  //! [libuv]

  uv_timer_t timer;
  uv_timer_init(loop, &timer);
  uv_timer_start(&timer, beat, 5, 5);

  uv_run(loop, UV_RUN_DEFAULT);
  std::puts("the loop has ended");
  return uv_loop_close(loop);
}
