// glib_host: fibers inside GLib's main loop, as in a program with GTK.
//
// Run:     build/release/examples/embedding/glib_host
#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

#include <glib-unix.h>
#include <glib.h>

using namespace std::chrono_literals;

namespace {

vigil::channel<int> clicks = vigil::make_channel<int>(16);

void count_clicks() {
  int n = 0;
  while (const auto click = clicks.recv_for(1h)) {
    std::printf("click %d\n", *click);
    if (++n == 3) break;
  }
  vigil::sleep_for(10ms);
  std::puts("counted");
}

gboolean click(gpointer) {
  static int n = 0;
  static_cast<void>(clicks.try_send(++n));
  return n < 3 ? G_SOURCE_CONTINUE : G_SOURCE_REMOVE;
}

}  // namespace

int main() {
  GMainLoop* const loop = g_main_loop_new(nullptr, FALSE);
  vigil::guest_runtime guest;

  //! [glib]
  struct host {
    vigil::guest_runtime* guest;
    GMainLoop* loop;
  } together{&guest, loop};

  g_unix_fd_add(
      guest.descriptor(),
      G_IO_IN,
      [](gint, GIOCondition, gpointer data) -> gboolean {
        const auto& h = *static_cast<host*>(data);
        if (h.guest->poll()) return G_SOURCE_CONTINUE;
        g_main_loop_quit(h.loop);
        return G_SOURCE_REMOVE;
      },
      &together);
  guest.start(count_clicks);
  //! [glib]

  g_timeout_add(5, click, nullptr);
  g_main_loop_run(loop);
  g_main_loop_unref(loop);
  std::puts("the loop has ended");
}
