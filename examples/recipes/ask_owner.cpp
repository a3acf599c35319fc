// Lets one fiber own the data, so that it needs no lock, and others ask it by messages.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <map>
#include <string>

struct deposit {
  std::string account;
  int amount = 0;
  vigil::sender<int> balance;  // with room for one, so that the owner never waits
};

void bank(vigil::receiver<deposit> deposits) {
  std::map<std::string, int> accounts;
  for (const deposit& d : deposits)
    d.balance.send(accounts[d.account] += d.amount);
}

int pay_in(const vigil::sender<deposit>& to, const std::string& account, int amount) {
  const auto reply = vigil::make_channel<int>(1);
  to.send({account, amount, reply});
  return reply.recv().value();
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto deposits = vigil::make_channel<deposit>();
    auto owner = vigil::spawn(bank, deposits);
    vigil::group customers;
    for (int i = 0; i < 10; ++i)
      customers.go([&deposits, i] { pay_in(deposits, i % 2 == 0 ? "ada" : "bob", i); });
    customers.wait();
    std::printf("ada has %d\n", pay_in(deposits, "ada", 0));
    std::printf("bob has %d\n", pay_in(deposits, "bob", 0));
    deposits.close();
    owner.join();
  });
}

//! [recipe]
