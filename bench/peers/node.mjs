// The workloads with Node: setTimeout, clearTimeout, refresh, setInterval.
//
// A delay is in whole milliseconds. A cleared timeout cannot be started again, so there
// is no "one timer used again" to arm and stop: each arming is a fresh object. refresh()
// starts a live one again with its own delay. One thread runs JavaScript. The protocol is
// that of peers.hpp.
import { readSync, writeSync } from 'node:fs';

// --- the protocol

const [workload, ...given] = process.argv.slice(2);
const asked = Object.fromEntries(given.map((a) => a.split('=')).map(([k, v]) => [k, Number(v)]));

function say(text) {
  writeSync(1, text + '\n');
}

// Blocks in read(2), like the other peers.
function nextLine() {
  const byte = Buffer.alloc(1);
  for (;;) {
    if (readSync(0, byte, 0, 1) === 0) return false;
    if (byte[0] === 10) return true;
  }
}

async function serve(sample) {
  say('ready');
  while (nextLine()) {
    const numbers = await sample();
    say(Object.entries(numbers).map(([name, value]) => `${name}=${value}`).join(' '));
  }
  process.exit(0);
}

// --- clocks and counters of the process; times are in milliseconds

const now = () => performance.now();

function cpuTime() {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e3;
}


const contextSwitches = () => process.resourceUsage().voluntaryContextSwitches;
const mark = () => process.ppid;

function work(length) {
  for (const start = now(); now() - start < length; );
}

const turn = () => new Promise((done) => setImmediate(done));
const nanosEach = (milliseconds, n) => (milliseconds * 1e6) / n;

async function cpuEach(n, operation) {
  const start = cpuTime();
  for (let i = 0; i < n; ++i) operation(i);
  await turn();
  return nanosEach(cpuTime() - start, n);
}

const hour = 3600e3;
const far = () => Math.floor(hour * (1 + Math.random()));
const nothing = () => {};

// --- the workloads

async function arm() {
  const others = Array.from({ length: asked.others }, () => setTimeout(nothing, far()));
  const one = setTimeout(nothing, far());
  await serve(async () => {
    const result = {
      fresh: await cpuEach(asked.ops, () => clearTimeout(setTimeout(nothing, far()))),
      reset_one: await cpuEach(asked.ops, () => one.refresh()),
    };
    if (others.length > 0) {
      result.reset_any = await cpuEach(asked.ops, () =>
        others[Math.floor(Math.random() * others.length)].refresh(),
      );
    }
    return result;
  });
}

async function burst() {
  const spread = asked.spread_us / 1e3;
  await serve(async () => {
    let fired = 0;
    let early = 0;
    let latest = 0;
    let before = 0;
    const first = now() + 100 + asked.n * 2e-3;
    const all = new Promise((done) => {
      setTimeout(() => (before = cpuTime()), first - now() - 3);
      for (let i = 0; i < asked.n; ++i) {
        const read = now();
        const delay = Math.ceil(first + spread * Math.random() - read);
        const deadline = read + delay;
        setTimeout(() => {
          const late = now() - deadline;
          if (late < 0) ++early;
          if (late > latest) latest = late;
          if (++fired === asked.n) done();
        }, delay);
      }
    });
    const inTime = now() < first ? 1 : 0;
    await all;
    return { cpu: nanosEach(cpuTime() - before, asked.n), early, latest, in_time: inTime };
  });
}

async function overshoot() {
  await serve(async () => {
    const late = [];
    for (let i = 0; i < asked.n; ++i) {
      const deadline = now() + 1;
      await new Promise((done) => setTimeout(done, 1));
      late.push((now() - deadline) * 1e3);
    }
    const early = late.filter((l) => l < 0).length;
    late.sort((a, b) => a - b);
    const quantile = (q) => late[Math.ceil(q * (late.length - 1))];
    return { p50: quantile(0.5), p99: quantile(0.99), early };
  });
}

async function counted(program) {
  const before = contextSwitches();
  mark();
  await program();
  mark();
  return { switches: contextSwitches() - before };
}

const kernelRandom = () =>
  serve(() =>
    counted(
      () =>
        new Promise((done) => {
          let left = asked.n;
          for (let i = 0; i < asked.n; ++i) {
            setTimeout(() => --left === 0 && done(), Math.floor(1000 * Math.random()));
          }
        }),
    ),
  );

const kernelTicks = () =>
  serve(() =>
    counted(
      () =>
        new Promise((done) => {
          let left = asked.n;
          const beat = setInterval(() => {
            if (--left > 0) return;
            clearInterval(beat);
            done();
          }, 1);
        }),
    ),
  );

const kernelStopped = () =>
  serve(() =>
    counted(async () => {
      for (let i = 0; i < asked.n; ++i) {
        const timeout = setTimeout(nothing, hour);
        await turn();
        work(0.02);
        clearTimeout(timeout);
      }
    }),
  );

const workloads = {
  arm,
  overshoot,
  'kernel-random': kernelRandom,
  'kernel-ticks': kernelTicks,
  'kernel-stopped': kernelStopped,
};
if (asked.workers === 1) workloads.burst = burst;

if (workload in workloads) await workloads[workload]();
else say('unsupported');
