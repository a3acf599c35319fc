// The workloads with Go: time.AfterFunc, Reset and Stop, goroutines.
//
// Workers are GOMAXPROCS; without a number there are as many as Go takes by default. A
// Reset of a stopped timer is how Go uses one again. The garbage collector runs as it is
// set by default; its work is part of the CPU time. The protocol is that of peers.hpp.
package main

import (
	"bufio"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type number struct {
	name  string
	value float64
}

// --- the protocol

var parameters = map[string]int{}

func serve(sample func() []number) {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var out strings.Builder
		for _, n := range sample() {
			fmt.Fprintf(&out, "%s=%g ", n.name, n.value)
		}
		fmt.Println(out.String())
	}
}

// --- clocks and counters of the process

func usage() syscall.Rusage {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u
}

func cpuTime() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func contextSwitches() float64 { return float64(usage().Nvcsw) }

// Resident memory and page tables, in bytes.
func memoryHeld() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	sum := 0
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "VmRSS:" || f[0] == "VmPTE:") {
			kib, _ := strconv.Atoi(f[1])
			sum += kib
		}
	}
	return float64(sum) * 1024
}

func mark() { syscall.Getppid() }

func work(length time.Duration) {
	for start := time.Now(); time.Since(start) < length; {
	}
}

func each(sum time.Duration, n int) float64 { return float64(sum.Nanoseconds()) / float64(n) }

func cpuEach(n int, operation func(i int)) float64 {
	start := cpuTime()
	for i := 0; i < n; i++ {
		operation(i)
	}
	runtime.Gosched()
	return each(cpuTime()-start, n)
}

// --- random numbers: splitmix64, as in the other peers

type dice uint64

func (d *dice) below(n uint64) uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	z ^= z >> 31
	high, _ := bits.Mul64(z, n)
	return high
}

func (d *dice) within(length time.Duration) time.Duration {
	return time.Duration(d.below(uint64(length)))
}

func (d *dice) far() time.Duration { return time.Hour + d.within(time.Hour) }

func (d *dice) index(n int) int { return int(d.below(uint64(n))) }

// --- the workloads

func nothing() {}

func makeTimers(n int, pending bool) []*time.Timer {
	d := dice(7)
	timers := make([]*time.Timer, n)
	for i := range timers {
		timers[i] = time.AfterFunc(d.far(), nothing)
		if !pending {
			timers[i].Stop()
		}
	}
	return timers
}

func arm() {
	runtime.GOMAXPROCS(parameters["workers"])
	others := makeTimers(parameters["others"], true)
	records := makeTimers(parameters["records"], false)
	one := makeTimers(1, false)[0]
	d := dice(42)
	ops := parameters["ops"]
	serve(func() []number {
		result := []number{
			{"one", cpuEach(ops, func(int) {
				one.Reset(d.far())
				one.Stop()
			})},
			{"records", cpuEach(ops, func(i int) {
				t := records[i%len(records)]
				t.Reset(d.far())
				t.Stop()
			})},
			{"fresh", cpuEach(ops, func(int) { time.AfterFunc(d.far(), nothing).Stop() })},
		}
		one.Reset(d.far())
		result = append(result, number{"reset_one", cpuEach(ops, func(int) { one.Reset(d.far()) })})
		one.Stop()
		if len(others) > 0 {
			result = append(result, number{"reset_any",
				cpuEach(ops, func(int) { others[d.index(len(others))].Reset(d.far()) })})
		}
		return result
	})
}

// The threads are busy this long first, until each is on its own processor.
const settling = 10 * time.Millisecond

// Arms and stops in n goroutines at once, each with its own timers.
func armInGoroutines(workers, n int) time.Duration {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	for _, t := range makeTimers(parameters["others"], true) {
		defer t.Stop()
	}
	var arrived int32
	var done sync.WaitGroup
	begun := make([]time.Time, n)
	ended := make([]time.Time, n)
	for g := 0; g < n; g++ {
		done.Add(1)
		go func(g int) {
			defer done.Done()
			own := makeTimers(parameters["records"], false)
			d := dice(g)
			atomic.AddInt32(&arrived, 1)
			for atomic.LoadInt32(&arrived) < int32(n) {
				runtime.Gosched()
			}
			work(settling)
			begun[g] = time.Now()
			for i := 0; i < parameters["ops"]; i++ {
				t := own[i%len(own)]
				t.Reset(d.far())
				t.Stop()
			}
			ended[g] = time.Now()
		}(g)
	}
	done.Wait()
	sort.Slice(begun, func(a, b int) bool { return begun[a].Before(begun[b]) })
	sort.Slice(ended, func(a, b int) bool { return ended[a].Before(ended[b]) })
	return ended[n-1].Sub(begun[0])
}

func armParallel() {
	ops := parameters["ops"]
	serve(func() []number {
		alone := each(armInGoroutines(1, 1), ops)
		oneOfTwo := each(armInGoroutines(2, 1), ops)
		both := each(armInGoroutines(2, 2), 2*ops)
		return []number{{"alone", alone}, {"one_of_two", oneOfTwo}, {"both", both},
			{"scaling", alone / both}}
	})
}

func burst() {
	runtime.GOMAXPROCS(parameters["workers"])
	n := parameters["n"]
	spread := time.Duration(parameters["spread_us"]) * time.Microsecond
	d := dice(42)
	serve(func() []number {
		var fired, early, latest int64
		first := time.Now().Add(50*time.Millisecond + time.Duration(n)*time.Microsecond)
		for i := 0; i < n; i++ {
			t := first.Add(d.within(spread))
			time.AfterFunc(time.Until(t), func() {
				late := int64(time.Since(t))
				if late < 0 {
					atomic.AddInt64(&early, 1)
				}
				for most := atomic.LoadInt64(&latest); late > most; most = atomic.LoadInt64(&latest) {
					if atomic.CompareAndSwapInt64(&latest, most, late) {
						break
					}
				}
				atomic.AddInt64(&fired, 1)
			})
		}
		inTime := 0.0
		if time.Now().Before(first) {
			inTime = 1
		}
		time.Sleep(time.Until(first.Add(-time.Millisecond)))
		start := cpuTime()
		time.Sleep(time.Until(first.Add(spread)))
		for atomic.LoadInt64(&fired) < int64(n) {
			time.Sleep(time.Millisecond)
		}
		return []number{{"cpu", each(cpuTime()-start, n)}, {"early", float64(early)},
			{"latest", float64(latest) / 1e6}, {"in_time", inTime}}
	})
}

func yield() {
	runtime.GOMAXPROCS(parameters["workers"])
	ops, routines := parameters["ops"], parameters["fibers"]
	serve(func() []number {
		var done sync.WaitGroup
		start := cpuTime()
		for g := 0; g < routines; g++ {
			done.Add(1)
			go func() {
				for i := 0; i < ops; i++ {
					runtime.Gosched()
				}
				done.Done()
			}()
		}
		done.Wait()
		return []number{{"yield", each(cpuTime()-start, routines*ops)}}
	})
}

func spawn() {
	runtime.GOMAXPROCS(parameters["workers"])
	ops := parameters["ops"]
	serve(func() []number {
		var done sync.WaitGroup
		start := time.Now()
		for i := 0; i < ops; i++ {
			done.Add(1)
			go func() { done.Done() }()
			done.Wait()
		}
		middle := time.Now()
		for i := 0; i < ops/100; i++ {
			done.Add(100)
			for j := 0; j < 100; j++ {
				go func() { done.Done() }()
			}
			done.Wait()
		}
		return []number{{"single", each(middle.Sub(start), ops)},
			{"hundred", each(time.Since(middle), ops)}}
	})
}

// Measures each way in turn; see workloads.py. A timed receive is a select with
// time.After.
func channels() {
	runtime.GOMAXPROCS(parameters["workers"])
	ops := parameters["ops"]
	plain := func(from chan int) { <-from }
	timed := func(from chan int) {
		select {
		case <-from:
		case <-time.After(time.Second):
		}
	}
	thereAndBack := func(capacity int, receive func(chan int)) float64 {
		ping, pong, done := make(chan int, capacity), make(chan int, capacity), make(chan bool)
		start := time.Now()
		go func() {
			for i := 0; i < ops; i++ {
				receive(ping)
				pong <- i
			}
			done <- true
		}()
		for i := 0; i < ops; i++ {
			ping <- i
			receive(pong)
		}
		<-done
		return each(time.Since(start), ops)
	}
	through := func(routines, capacity int) float64 {
		items := make(chan int, capacity)
		var done sync.WaitGroup
		start := time.Now()
		for r := 0; r < routines; r++ {
			done.Add(2)
			go func() {
				for i := 0; i < ops/routines; i++ {
					items <- i
				}
				done.Done()
			}()
			go func() {
				for i := 0; i < ops/routines; i++ {
					<-items
				}
				done.Done()
			}()
		}
		done.Wait()
		return each(time.Since(start), ops)
	}
	serve(func() []number {
		return []number{{"rendezvous", thereAndBack(0, plain)}, {"timed", thereAndBack(1, timed)},
			{"buffered", through(1, 128)}, {"shared", through(4, 8)}}
	})
}

// Measures one sync.Mutex, like contend() of peers.hpp.
func mutex() {
	runtime.GOMAXPROCS(parameters["workers"])
	const routines = 8
	ops := parameters["ops"]
	measured := func(n int, section func(*sync.Mutex)) float64 {
		var m sync.Mutex
		var done sync.WaitGroup
		done.Add(n)
		start := time.Now()
		for r := 0; r < n; r++ {
			go func() {
				for i := 0; i < ops/n; i++ {
					section(&m)
				}
				done.Done()
			}()
		}
		done.Wait()
		return each(time.Since(start), ops)
	}
	serve(func() []number {
		sum := 0
		count := func(m *sync.Mutex) {
			m.Lock()
			sum++
			m.Unlock()
		}
		alone := measured(1, count)
		tight := measured(routines, count)
		turns := measured(routines, func(m *sync.Mutex) {
			count(m)
			runtime.Gosched()
		})
		var longest time.Duration
		measured(routines, func(m *sync.Mutex) {
			before := time.Now()
			m.Lock()
			if waited := time.Since(before); waited > longest {
				longest = waited
			}
			m.Unlock()
		})
		return []number{{"alone", alone}, {"tight", tight}, {"turns", turns},
			{"longest", float64(longest.Nanoseconds()) / 1e3}}
	})
}

func sleepers() {
	runtime.GOMAXPROCS(parameters["workers"])
	n := parameters["n"]
	d := dice(42)
	serve(func() []number {
		var asleep, done int64
		memory := memoryHeld()
		start := cpuTime()
		toStart := 50*time.Millisecond + time.Duration(n*parameters["start_us"])*time.Microsecond
		first := time.Now().Add(toStart)
		for i := 0; i < n; i++ {
			t := first.Add(d.within(time.Second))
			go func() {
				atomic.AddInt64(&asleep, 1)
				time.Sleep(time.Until(t))
				atomic.AddInt64(&done, 1)
			}()
		}
		for atomic.LoadInt64(&asleep) < int64(n) {
			time.Sleep(time.Millisecond)
		}
		together := 0.0
		if time.Now().Before(first) {
			together = 1
		}
		held := memoryHeld() - memory
		for atomic.LoadInt64(&done) < int64(n) {
			time.Sleep(5 * time.Millisecond)
		}
		return []number{{"cpu", each(cpuTime()-start, n)}, {"memory", held / float64(n)},
			{"together", together}}
	})
}

func overshoot() {
	runtime.GOMAXPROCS(parameters["workers"])
	n := parameters["n"]
	serve(func() []number {
		late := make([]float64, n)
		early := 0.0
		for i := range late {
			deadline := time.Now().Add(time.Millisecond)
			time.Sleep(time.Millisecond)
			late[i] = float64(time.Since(deadline).Nanoseconds()) / 1e3
			if late[i] < 0 {
				early++
			}
		}
		sort.Float64s(late)
		return []number{{"p50", late[n/2]}, {"p99", late[(99*(n-1)+99)/100]}, {"early", early}}
	})
}

func counted(program func()) []number {
	before := contextSwitches()
	mark()
	program()
	mark()
	return []number{{"switches", contextSwitches() - before}}
}

func kernelRandom() {
	runtime.GOMAXPROCS(1)
	n := parameters["n"]
	d := dice(42)
	serve(func() []number {
		return counted(func() {
			var fired sync.WaitGroup
			fired.Add(n)
			for i := 0; i < n; i++ {
				time.AfterFunc(d.within(time.Second), fired.Done)
			}
			fired.Wait()
		})
	})
}

func kernelTicks() {
	runtime.GOMAXPROCS(1)
	serve(func() []number {
		return counted(func() {
			beat := time.NewTicker(time.Millisecond)
			for i := 0; i < parameters["n"]; i++ {
				<-beat.C
			}
			beat.Stop()
		})
	})
}

func kernelStopped() {
	runtime.GOMAXPROCS(1)
	serve(func() []number {
		return counted(func() {
			for i := 0; i < parameters["n"]; i++ {
				timeout := time.AfterFunc(time.Hour, nothing)
				runtime.Gosched()
				work(20 * time.Microsecond)
				timeout.Stop()
			}
		})
	})
}

func main() {
	for _, a := range os.Args[2:] {
		name, value, _ := strings.Cut(a, "=")
		parameters[name], _ = strconv.Atoi(value)
	}
	workloads := map[string]func(){
		"arm": arm, "arm-parallel": armParallel, "burst": burst, "yield": yield, "spawn": spawn, "channels": channels,
		"mutex":    mutex,
		"sleepers": sleepers, "overshoot": overshoot, "kernel-random": kernelRandom,
		"kernel-ticks": kernelTicks, "kernel-stopped": kernelStopped,
	}
	if run, known := workloads[os.Args[1]]; known {
		run()
	} else {
		fmt.Println("unsupported")
	}
}
