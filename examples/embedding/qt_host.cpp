// qt_host: fibers inside Qt's event loop.
//
// Run:     QT_QPA_PLATFORM=offscreen build/release/examples/embedding/qt_host
#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <QGuiApplication>
#include <QSocketNotifier>
#include <QTimer>
#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  QGuiApplication app(argc, argv);
  vigil::guest_runtime guest;
  auto keys = vigil::make_channel<int>(16);

  //! [qt]
  QSocketNotifier ready(guest.descriptor(), QSocketNotifier::Read);
  QObject::connect(&ready, &QSocketNotifier::activated, [&] {
    if (guest.poll()) return;
    ready.setEnabled(false);
    QCoreApplication::quit();
  });
  guest.start([&] {
    for (int i = 0; i < 3; ++i)
      std::printf("key %d\n", *keys.recv());
    vigil::sleep_for(10ms);
    std::puts("typed");
  });
  //! [qt]

  int n = 0;
  QTimer typist;
  QObject::connect(&typist, &QTimer::timeout, [&] {
    if (n < 3) static_cast<void>(keys.try_send(++n));
  });
  typist.start(5);
  const int status = QCoreApplication::exec();
  std::puts("the loop has ended");
  return status;
}
