// Command testkernel runs tests on a kernel with WireGuard and ESP, which the machine's own may
// lack: Debian's cloud kernel, in QEMU.
//
//	testkernel [-v] [-run REGEXP | -bench REGEXP] [PACKAGE...]
//
// With -bench it runs benchmarks instead, and puts the rows they record (internal/measure) into the
// file that SUBCTL_BENCH names.
//
// It wants Debian or its like on amd64, with what scripts/prereqs.sh installs, but neither root nor
// KVM. It runs in the root of the repository. The kernel package is never installed: it is fetched
// with apt and unpacked into the user's cache, once for each version.
//
// The guest's file system is that of the agents' image (scripts/image/rootfs.sh), so what is tested
// is what ships, with the commands that tests type and the test binaries on top. It is made anew
// each time and is never a file that could be left behind. Modules are loaded by the kernel itself,
// through modprobe, when somebody asks for them: as on a node.
//
// In the guest nothing may be skipped: see nstest.RequireRoot and nstest.RequireKernel. Tests of a
// package that fail run once more, as the processors are emulated: see init.sh. If the kernel
// itself hangs or panics, a second guest runs the remaining suites: see boot. The program prints
// the output of the tests, then their failures once more, and has their exit status. It prints the
// kernel's messages with -v, and if the guest ends before the tests do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"subctl/internal/measure"
)

// suite is a package whose tests run in the guest.
type suite struct {
	pkg   string // as for "go test"
	run   string // which of its tests, a regular expression as for "go test"; empty for all
	bench string // which of its benchmarks, likewise; empty for none
}

// suites are the tests that "make test-kernel" runs: tests for which it matters that the kernel has
// WireGuard or ESP. The emulated processors are slow, so other tests, such as the tests of charon's
// files and messages, run on the machine's own kernel only.
var suites = []suite{
	{pkg: "./internal/nstest", run: "^TestKernel$"}, // prints what the kernel has
	{
		pkg: "./dataplane/kernel",
		run: "^Test(Facts|RoundTrip|Walk|WireGuard.*|Handshake|IPsec(Rekey|Change|CharonKilled|Adopts|Foreign|LeftBehind|Transport)?|AntispoofChangeUnderTraffic)$",
	},
	{pkg: "./dataplane/kernel/link", run: "^TestProbesTogether$"},
	{pkg: "./cable/wireguard", run: "^Test(Traffic|Change|HostileRemovedCluster)"},
	{pkg: "./cable/ipsec", run: "^Test(Traffic|Change|HostileRemovedCluster)"},
	{pkg: "./cable/drivers", run: "^TestTraffic/ipsec"}, // and vxlan+ipsec
	{pkg: "./sdewan/cnf", run: "^Test(IPsec|ScenariosOnLinux)"},
	{pkg: "./sdewan/cnf/agent", run: "^TestTraffic(Failover|Moves|Firewall|Reflection|ToTheCluster|SurvivesChanges)"},
	{pkg: "./agent", run: "^TestLeakMatrix$/^vxlan.ipsec$"},
}

// benchmarks are those that tell more of a kernel with WireGuard and ESP than of the machine's own.
var benchmarks = []suite{
	{pkg: "./cable/wireguard", bench: "."},
	{pkg: "./cable/ipsec", bench: "."},
	{pkg: "./sdewan/cnf/agent", bench: "^BenchmarkForwarding$"},
}

// environment is the environment of the tests.
var environment = []string{
	"SUBCTL_REQUIRE_ROOT=1",
	"SUBCTL_REQUIRE_KERNEL=wireguard,esp,xfrm-interface",
	measure.File + "=" + rowsFile,
	"'" + measure.Where + "=in QEMU'",
	measure.Repeat + "=25", // the guest is slow, but nothing disturbs it
}

// rowsFile is the file to which the guest's benchmarks write what they measure.
const rowsFile = "/rows.json"

func main() {
	runtime.LockOSThread() // QEMU dies with the thread that started it, see boot
	run := flag.String("run", "", "only tests that match, in all packages, as for go test")
	bench := flag.String("bench", "",
		"run no tests, but benchmarks that match, as for go test; without a package and with . those that depend on the guest's kernel")
	verbose := flag.Bool("v", false, "show what the kernel says")
	timeout := flag.Duration("timeout", 30*time.Minute, "how long the guest may take")
	flag.Parse()
	chosen := choose(flag.Args(), *run, *bench)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := test(ctx, chosen, *timeout, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "testkernel:", err)
		os.Exit(1)
	}
}

// choose returns what to run of which packages; all that is run otherwise if none are named.
func choose(packages []string, run, bench string) []suite {
	chosen := slices.Clone(suites)
	if len(packages) == 0 && bench != "" {
		chosen = slices.Clone(benchmarks)
	}
	if len(packages) > 0 {
		chosen = nil
		for _, pkg := range packages {
			chosen = append(chosen, suite{pkg: pkg})
		}
	}
	for i := range chosen {
		switch {
		case bench != "":
			chosen[i].run = "^$"
			if bench != "." || chosen[i].bench == "" {
				chosen[i].bench = bench
			}
		case run != "":
			chosen[i].run = run
		}
	}
	return chosen
}

// test builds the suites and runs them in a guest.
func test(ctx context.Context, suites []suite, timeout time.Duration, verbose bool) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return errors.New("only on Linux on amd64: its kernel and its binaries are the guest's")
	}
	k, err := fetch(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	image, err := initramfs(ctx, k, suites)
	if err != nil {
		return fmt.Errorf("making the guest's file system: %w", err)
	}
	defer image.Close()
	size, err := image.Stat()
	if err != nil {
		return err
	}
	fmt.Printf("testkernel: %s, a file system of %d MB made in %s\n", k.name, size.Size()>>20,
		time.Since(started).Round(time.Second))
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the guest took more than %s", timeout))
	defer cancel()
	return boot(ctx, k, image, suites, verbose)
}
