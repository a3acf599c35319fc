// Tests that a program does not get stuck, and sees who waits for what if it does.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

void talk() {
  const auto questions = vigil::make_channel<std::string>();
  const auto answers = vigil::make_channel<std::string>();
  vigil::go({.name = "server"}, [=] {
    for (const std::string& question : questions)
      answers.send(question + ": yes");
  });
  questions.send("one");
  questions.send("two");  // but the server waits for somebody to take its answer
  std::puts(answers.recv()->c_str());
}

int main() {
  try {
    vigil::testing::run_virtual(talk);
  } catch (const vigil::deadlock&) {  // the list of fibers is on standard error
    std::puts("it is stuck");
  }
}

//! [recipe]
