// The workloads with Tokio: Sleep, interval, tasks.
//
// A Sleep is armed when it is first polled and stopped when it is dropped, so arm+stop
// is: make, poll once, drop. "One timer used again" makes it in the same place, "fresh"
// boxes it. Timers count in milliseconds. One worker means the current_thread runtime,
// two mean multi_thread. The samples run unconstrained: Tokio's budget would refuse to
// arm more than 128 in a turn. The protocol is that of peers.hpp.
use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, Mutex};
use tokio::task::{unconstrained, yield_now};
use tokio::time::{interval, sleep, sleep_until, timeout, Sleep};

type Numbers = Vec<(&'static str, f64)>;
type Parameters = HashMap<String, u64>;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
// The threads are busy this long first, until each is on its own processor.
const SETTLING: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);

// --- the protocol

fn serve(mut sample: impl FnMut() -> Numbers) {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let mut out = String::new();
        for (name, value) in sample() {
            out += &format!("{name}={value} ");
        }
        println!("{out}");
        std::io::stdout().flush().unwrap();
    }
}

// Without a number of workers there are as many as Tokio takes by default.
fn runtime(workers: u64) -> Runtime {
    let mut builder =
        if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if workers != 0 {
        builder.worker_threads(workers as usize);
    }
    builder.enable_time().build().unwrap()
}

// Runs one sample in a task, on a worker and not on the thread that waits for it.
fn in_task<F>(runtime: &Runtime, sample: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    runtime.block_on(runtime.spawn(unconstrained(sample))).unwrap()
}

// --- clocks and counters of the process

fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn context_switches() -> f64 {
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nvcsw as f64
    }
}

// Resident memory and page tables, in bytes.
fn memory_held() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib: f64 = text
        .lines()
        .filter(|l| l.starts_with("VmRSS:") || l.starts_with("VmPTE:"))
        .map(|l| l.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap())
        .sum();
    kib * 1024.0
}

fn mark() {
    let _ = std::os::unix::process::parent_id();
}

fn work(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {}
}

fn each(sum: Duration, n: u64) -> f64 {
    sum.as_nanos() as f64 / n as f64
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

// Nanoseconds from `wanted` to now; negative: early.
fn late(wanted: Instant) -> i64 {
    let now = Instant::now();
    if now >= wanted {
        (now - wanted).as_nanos() as i64
    } else {
        -((wanted - now).as_nanos() as i64)
    }
}

// --- random numbers: splitmix64, as in the other peers

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(n)) >> 64) as u64
    }

    fn within(&mut self, length: Duration) -> Duration {
        Duration::from_nanos(self.below(length.as_nanos() as u64))
    }

    fn far(&mut self) -> Duration {
        HOUR + self.within(HOUR)
    }
}

// --- arming

// Calls f with the context in which the task is polled.
struct WithContext<F>(F);

impl<T, F: FnMut(&mut Context<'_>) -> T + Unpin> Future for WithContext<F> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Poll::Ready((self.0)(context))
    }
}

fn arm_sleep(sleep: Pin<&mut Sleep>, context: &mut Context<'_>) {
    assert!(sleep.poll(context).is_pending());
}

// A place in which a Sleep is made, armed and dropped again and again.
type Record = Pin<Box<Option<Sleep>>>;

fn make_records(n: u64) -> Vec<Record> {
    (0..n).map(|_| Box::pin(None)).collect()
}

fn arm_and_stop(record: &mut Record, delay: Duration, context: &mut Context<'_>) {
    record.set(Some(sleep(delay)));
    arm_sleep(record.as_mut().as_pin_mut().unwrap(), context);
    record.set(None);
}

// Returns the CPU time of each operation, including a turn of the runtime.
async fn cpu_each(n: u64, mut operation: impl FnMut(u64, &mut Context<'_>)) -> f64 {
    let start = cpu_time();
    WithContext(|context: &mut Context<'_>| {
        for i in 0..n {
            operation(i, context);
        }
    })
    .await;
    yield_now().await;
    each(cpu_time() - start, n)
}

async fn make_sleeps(n: u64) -> Vec<Pin<Box<Sleep>>> {
    let mut dice = Dice(7);
    let mut sleeps = Vec::new();
    WithContext(|context: &mut Context<'_>| {
        for _ in 0..n {
            let mut s = Box::pin(sleep(dice.far()));
            arm_sleep(s.as_mut(), context);
            sleeps.push(s);
        }
    })
    .await;
    sleeps
}

fn arm(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let ops = asked["ops"];
    let mut dice = Dice(42);
    let mut others = runtime.block_on(unconstrained(make_sleeps(asked["others"])));
    let mut records = make_records(asked["records"]);
    let mut one = make_records(1);
    serve(|| {
        runtime.block_on(unconstrained(async {
            let mut result: Numbers = Vec::new();
            let each = cpu_each(ops, |_, c| arm_and_stop(&mut one[0], dice.far(), c)).await;
            result.push(("one", each));
            let n = records.len();
            let each =
                cpu_each(ops, |i, c| arm_and_stop(&mut records[i as usize % n], dice.far(), c))
                    .await;
            result.push(("records", each));
            let each = cpu_each(ops, |_, c| {
                let mut s = Box::pin(sleep(dice.far()));
                arm_sleep(s.as_mut(), c);
            })
            .await;
            result.push(("fresh", each));
            let mut single = make_sleeps(1).await;
            let each =
                cpu_each(ops, |_, _| single[0].as_mut().reset(tokio_now() + dice.far())).await;
            result.push(("reset_one", each));
            if !others.is_empty() {
                let each = cpu_each(ops, |_, _| {
                    let any = dice.below(others.len() as u64) as usize;
                    others[any].as_mut().reset(tokio_now() + dice.far());
                })
                .await;
                result.push(("reset_any", each));
            }
            result
        }))
    });
}

fn tokio_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

// Arms and stops its own timers, and returns when it began and ended. All tasks begin
// together.
async fn arm_in_task(
    task: u64,
    arrived: Arc<AtomicU64>,
    n: u64,
    records: u64,
    ops: u64,
) -> (Instant, Instant) {
    let mut own = make_records(records);
    let mut dice = Dice(task);
    arrived.fetch_add(1, SeqCst);
    while arrived.load(SeqCst) < n {
        yield_now().await;
    }
    work(SETTLING);
    let start = Instant::now();
    WithContext(|context: &mut Context<'_>| {
        for i in 0..ops {
            arm_and_stop(&mut own[(i % records) as usize], dice.far(), context);
        }
    })
    .await;
    (start, Instant::now())
}

fn time_tasks(workers: u64, n: u64, asked: &Parameters) -> Duration {
    let (records, ops) = (asked["records"], asked["ops"]);
    let runtime = runtime(workers);
    let _others = runtime.block_on(unconstrained(make_sleeps(asked["others"])));
    let arrived = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..n)
        .map(|task| arm_in_task(task, arrived.clone(), n, records, ops))
        .map(|task| runtime.spawn(unconstrained(task)))
        .collect();
    let times: Vec<_> = tasks.into_iter().map(|t| runtime.block_on(t).unwrap()).collect();
    *times.iter().map(|(_, end)| end).max().unwrap()
        - *times.iter().map(|(start, _)| start).min().unwrap()
}

fn arm_parallel(asked: &Parameters) {
    let ops = asked["ops"];
    serve(|| {
        let alone = each(time_tasks(1, 1, asked), ops);
        let one_of_two = each(time_tasks(2, 1, asked), ops);
        let both = each(time_tasks(2, 2, asked), 2 * ops);
        vec![
            ("alone", alone),
            ("one_of_two", one_of_two),
            ("both", both),
            ("scaling", alone / both),
        ]
    });
}

// --- firing

fn burst(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let n = asked["n"];
    let spread = Duration::from_micros(asked["spread_us"]);
    let mut seed = 0;
    serve(|| {
        seed += 1;
        in_task(&runtime, async move {
            let mut dice = Dice(seed);
            let early = Arc::new(AtomicU64::new(0));
            let latest = Arc::new(AtomicI64::new(0));
            let fired = Arc::new(AtomicU64::new(0));
            let first = Instant::now() + 50 * MILLISECOND + Duration::from_micros(2) * n as u32;
            for _ in 0..n {
                let t = first + dice.within(spread);
                let (early, latest, fired) = (early.clone(), latest.clone(), fired.clone());
                tokio::spawn(async move {
                    sleep_until(t.into()).await;
                    let late = late(t);
                    if late < 0 {
                        early.fetch_add(1, SeqCst);
                    }
                    latest.fetch_max(late, SeqCst);
                    fired.fetch_add(1, SeqCst);
                });
            }
            // On one worker the tasks have not armed anything before this.
            sleep_until((first - 3 * MILLISECOND).into()).await;
            let in_time = Instant::now() < first;
            let start = cpu_time();
            sleep_until((first + spread).into()).await;
            while fired.load(SeqCst) < n {
                sleep(MILLISECOND).await;
            }
            vec![
                ("cpu", each(cpu_time() - start, n)),
                ("early", early.load(SeqCst) as f64),
                ("latest", latest.load(SeqCst) as f64 / 1e6),
                ("in_time", flag(in_time)),
            ]
        })
    });
}

fn sleepers(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let n = asked["n"];
    let to_start = Duration::from_micros(n * asked["start_us"]);
    let mut seed = 0;
    serve(|| {
        seed += 1;
        in_task(&runtime, async move {
            let mut dice = Dice(seed);
            let asleep = Arc::new(AtomicU64::new(0));
            let done = Arc::new(AtomicU64::new(0));
            let memory = memory_held();
            let start = cpu_time();
            let first = Instant::now() + 50 * MILLISECOND + to_start;
            for _ in 0..n {
                let t = first + dice.within(SECOND);
                let (asleep, done) = (asleep.clone(), done.clone());
                tokio::spawn(async move {
                    asleep.fetch_add(1, SeqCst);
                    sleep_until(t.into()).await;
                    done.fetch_add(1, SeqCst);
                });
            }
            while asleep.load(SeqCst) < n {
                sleep(MILLISECOND).await;
            }
            let together = Instant::now() < first;
            let held = memory_held() - memory;
            while done.load(SeqCst) < n {
                sleep(5 * MILLISECOND).await;
            }
            vec![
                ("cpu", each(cpu_time() - start, n)),
                ("memory", held / n as f64),
                ("together", flag(together)),
            ]
        })
    });
}

fn overshoot(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let n = asked["n"];
    serve(|| {
        in_task(&runtime, async move {
            let mut all = Vec::new();
            for _ in 0..n {
                let deadline = Instant::now() + MILLISECOND;
                sleep(MILLISECOND).await;
                all.push(late(deadline) as f64 / 1e3);
            }
            let early = all.iter().filter(|l| **l < 0.0).count() as f64;
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let quantile = |q: f64| all[(q * (all.len() - 1) as f64).ceil() as usize];
            vec![("p50", quantile(0.5)), ("p99", quantile(0.99)), ("early", early)]
        })
    });
}

// --- tasks

fn yield_to_another(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let (ops, n) = (asked["ops"], asked["fibers"]);
    let often = move || async move {
        for _ in 0..ops {
            yield_now().await;
        }
    };
    serve(|| {
        in_task(&runtime, async move {
            let start = cpu_time();
            let all: Vec<_> = (0..n).map(|_| tokio::spawn(often())).collect();
            for task in all {
                task.await.unwrap();
            }
            vec![("yield", each(cpu_time() - start, n * ops))]
        })
    });
}

fn spawn(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let ops = asked["ops"];
    serve(|| {
        in_task(&runtime, async move {
            let start = Instant::now();
            for _ in 0..ops {
                tokio::spawn(async {}).await.unwrap();
            }
            let middle = Instant::now();
            let mut tasks = Vec::with_capacity(100);
            for _ in 0..ops / 100 {
                tasks.extend((0..100).map(|_| tokio::spawn(async {})));
                for task in tasks.drain(..) {
                    task.await.unwrap();
                }
            }
            vec![("single", each(middle - start, ops)), ("hundred", each(middle.elapsed(), ops))]
        })
    });
}

// Measures a value there and back over two mpsc channels of 1, plain and with a timeout,
// and an item through one of 128. Tokio has no unbuffered channel, so the smallest one
// stands for it, and no channel with several receivers.
fn channels(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let ops = asked["ops"];
    serve(|| {
        in_task(&runtime, async move {
            let plain = there_and_back(ops, false).await;
            let timed = there_and_back(ops, true).await;
            let (to, mut from) = mpsc::channel::<u64>(128);
            let start = Instant::now();
            let sender = tokio::spawn(async move {
                for i in 0..ops {
                    to.send(i).await.unwrap();
                }
            });
            for _ in 0..ops {
                from.recv().await.unwrap();
            }
            sender.await.unwrap();
            vec![("rendezvous", plain), ("timed", timed), ("buffered", each(start.elapsed(), ops))]
        })
    });
}

async fn receive(from: &mut mpsc::Receiver<u64>, timed: bool) {
    if timed {
        timeout(SECOND, from.recv()).await.unwrap();
    } else {
        from.recv().await;
    }
}

async fn there_and_back(ops: u64, timed: bool) -> f64 {
    let (ping, mut pinged) = mpsc::channel(1);
    let (pong, mut ponged) = mpsc::channel(1);
    let start = Instant::now();
    let other = tokio::spawn(async move {
        for i in 0..ops {
            receive(&mut pinged, timed).await;
            pong.send(i).await.unwrap();
        }
    });
    for i in 0..ops {
        ping.send(i).await.unwrap();
        receive(&mut ponged, timed).await;
    }
    other.await.unwrap();
    each(start.elapsed(), ops)
}

// The work of a task beside a lock and unlock.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Nothing,
    Yield,
    Clock,
}

// Returns nanoseconds for each lock and unlock of n tasks, and microseconds of the
// longest wait.
async fn contend(ops: u64, n: u64, after: After) -> (f64, f64) {
    let shared = Arc::new(Mutex::new((0, Duration::ZERO)));
    let start = Instant::now();
    let tasks: Vec<_> = (0..n)
        .map(|_| {
            let shared = shared.clone();
            tokio::spawn(async move {
                for _ in 0..ops / n {
                    let before = (after == After::Clock).then(Instant::now);
                    let mut inside = shared.lock().await;
                    inside.0 += 1;
                    if let Some(before) = before {
                        inside.1 = inside.1.max(before.elapsed());
                    }
                    drop(inside);
                    if after == After::Yield {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let longest = shared.lock().await.1;
    (each(start.elapsed(), ops), longest.as_nanos() as f64 / 1e3)
}

// Measures one tokio::sync::Mutex, like contend() of peers.hpp.
fn mutex(asked: &Parameters) {
    let runtime = runtime(asked["workers"]);
    let ops = asked["ops"];
    serve(|| {
        in_task(&runtime, async move {
            let alone = contend(ops, 1, After::Nothing).await.0;
            let tight = contend(ops, 8, After::Nothing).await.0;
            let turns = contend(ops, 8, After::Yield).await.0;
            let longest = contend(ops, 8, After::Clock).await.1;
            vec![("alone", alone), ("tight", tight), ("turns", turns), ("longest", longest)]
        })
    });
}

// --- system calls

async fn counted(program: impl Future<Output = ()>) -> Numbers {
    let before = context_switches();
    mark();
    program.await;
    mark();
    vec![("switches", context_switches() - before)]
}

fn kernel_random(asked: &Parameters) {
    let runtime = runtime(1);
    let n = asked["n"];
    let mut dice = Dice(42);
    serve(|| {
        runtime.block_on(counted(async {
            let tasks: Vec<_> =
                (0..n).map(|_| tokio::spawn(sleep(dice.within(SECOND)))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        }))
    });
}

fn kernel_ticks(asked: &Parameters) {
    let runtime = runtime(1);
    let n = asked["n"];
    serve(|| {
        runtime.block_on(counted(async {
            let mut beat = interval(MILLISECOND);
            for _ in 0..n {
                beat.tick().await;
            }
        }))
    });
}

fn kernel_stopped(asked: &Parameters) {
    let runtime = runtime(1);
    let n = asked["n"];
    serve(|| {
        runtime.block_on(counted(async {
            for _ in 0..n {
                let mut timeout = Box::pin(sleep(HOUR));
                WithContext(|context: &mut Context<'_>| arm_sleep(timeout.as_mut(), context)).await;
                yield_now().await;
                work(Duration::from_micros(20));
            }
        }))
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().unwrap_or_default();
    let asked: Parameters = arguments
        .filter_map(|a| a.split_once('=').map(|(k, v)| (k.to_string(), v.parse().unwrap())))
        .collect();
    match workload.as_str() {
        "arm" => arm(&asked),
        "arm-parallel" => arm_parallel(&asked),
        "burst" => burst(&asked),
        "yield" => yield_to_another(&asked),
        "spawn" => spawn(&asked),
        "sleepers" => sleepers(&asked),
        "channels" => channels(&asked),
        "mutex" => mutex(&asked),
        "overshoot" => overshoot(&asked),
        "kernel-random" => kernel_random(&asked),
        "kernel-ticks" => kernel_ticks(&asked),
        "kernel-stopped" => kernel_stopped(&asked),
        _ => println!("unsupported"),
    }
}
