// A value through a select: from the call of select, which finds nothing and waits, to
// its return with the value that another fiber sends meanwhile.
#include "marks.hpp"

#include <vigil/channel.hpp>
#include <vigil/select.hpp>

int main() {
  on_one_worker([] {
    auto questions = vigil::make_channel<int>(), answers = vigil::make_channel<int>(),
         quit = vigil::make_channel<int>();
    vigil::fiber sender = vigil::spawn([&] {
      while (const auto question = questions.recv())
        answers.send(*question + 1);
    });
    vigil::spawn([&] {
      for (int i = 1; i <= rounds; ++i) {
        questions.send(i);
        if (i == rounds) walk_begins();
        vigil::select(vigil::on_recv(answers), vigil::on_recv(quit));
        if (i == rounds) walk_ends();
      }
    }).join();
    questions.close();
    sender.join();
  });
}
