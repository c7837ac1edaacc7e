package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"subctl/internal/measure"
)

// qemu starts a machine without disks and networks. It ends with the first reset. The files are
// those that boot hands over.
const qemu = `qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
	-machine q35 -accel tcg -cpu max -m 1536
	-initrd /proc/self/fd/3 -serial file:/proc/self/fd/4 -serial stdio`

// Tests have as many processors as most machines have at least. Benchmarks have one, and a clock
// that advances by 2 ns for each instruction: what else the machine does cannot change what they
// measure.
const (
	forTests      = "-smp 2"
	forBenchmarks = "-smp 1 -icount shift=1,sleep=off"
)

// commandLine is the kernel's. A bug, a panic, or a processor that does nothing else for a minute
// resets the machine; the first serial port is the console. On a busy machine the emulated timer
// may be too late for the kernel's check of it, which would panic.
const commandLine = "console=ttyS0 loglevel=5 oops=panic panic=-1 softlockup_panic=1 watchdog_thresh=30 no_timer_check"

// guests is the number of guests that may be started until all suites have ended: the emulated
// kernel has been seen to hang.
const guests = 2

// boot runs the suites in a guest that has the file system, and returns what went wrong. If the
// guest ends before its tests do, a second guest runs the remaining suites.
func boot(ctx context.Context, k kernel, image *os.File, suites []suite, verbose bool) error {
	started := time.Now()
	var all saying
	for n := 1; ; n++ {
		said, err := bootOnce(ctx, k, image, suites, len(all.exits), verbose)
		all.add(said)
		if left := len(suites) - len(all.exits); left > 0 && n < guests && ctx.Err() == nil {
			fmt.Printf("testkernel: the guest ended in the tests of %s: a second guest runs the remaining suites\n",
				suites[len(all.exits)].pkg)
			continue
		}
		if len(all.failed) > 0 {
			fmt.Printf("testkernel: what failed:\n%s", strings.Join(all.failed, ""))
		}
		if err := errors.Join(err, verdict(suites, all.exits), keep(all.rows)); err != nil {
			return fmt.Errorf("on %s: %w", k.name, err)
		}
		fmt.Printf("testkernel: %d packages passed in %s; skipped: %v\n", len(suites),
			time.Since(started).Round(time.Second), all.skipped)
		return nil
	}
}

// bootOnce runs suites in one guest, and returns what the guest printed. It skips the first suites,
// of which the number ended has ended in an earlier guest.
func bootOnce(ctx context.Context, k kernel, image *os.File, suites []suite, ended int, verbose bool) (saying, error) {
	console, err := os.CreateTemp("", "testkernel-console-")
	if err != nil {
		return saying{}, err
	}
	defer console.Close()
	if err := os.Remove(console.Name()); err != nil {
		return saying{}, err
	}
	processors := forTests
	if slices.ContainsFunc(suites, func(s suite) bool { return s.bench != "" }) {
		processors = forBenchmarks
	}
	args := append(strings.Fields(qemu+" "+processors), "-kernel", filepath.Join(k.dir, "vmlinuz"), "-append",
		fmt.Sprintf("%s ended=%d", commandLine, ended))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{image, console}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // whatever ends this process ends the guest
	tests, err := cmd.StdoutPipe()
	if err != nil {
		return saying{}, err
	}
	if err := cmd.Start(); err != nil {
		return saying{}, fmt.Errorf("starting QEMU: %w", err)
	}
	said, readErr := follow(tests, os.Stdout)
	err = errors.Join(readErr, cmd.Wait())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if verbose || err != nil || ended+len(said.exits) < len(suites) {
		err = errors.Join(err, show(console))
	}
	return said, err
}

// verdict says what the exit status of those suites mean that came to an end.
func verdict(suites []suite, exits []string) (err error) {
	if n := len(exits); n < len(suites) {
		err = fmt.Errorf("the guest ended in the tests of %s", suites[n].pkg)
	}
	for i, exit := range exits {
		if exit != "0" {
			err = errors.Join(err, fmt.Errorf("the tests of %s fail", suites[i].pkg))
		}
	}
	return err
}

// saying holds the information in the guest's lines.
type saying struct {
	exits   []string // status of each suite that ended
	skipped []string // tests
	rows    []byte   // JSON: what benchmarks measured
	failed  []string // the lines of tests that failed, and some before them
}

// add appends what another guest printed.
func (s *saying) add(more saying) {
	s.exits = append(s.exits, more.exits...)
	s.skipped = append(s.skipped, more.skipped...)
	s.rows = append(s.rows, more.rows...)
	s.failed = append(s.failed, more.failed...)
}

// before is the number of lines before a failure that are repeated.
const before = 40

// follow copies what the guest prints, and returns what it tells.
func follow(guest io.Reader, to io.Writer) (s saying, err error) {
	lines := bufio.NewReader(guest)
	var last []string // lines that are not in failed yet
	for {
		line, err := lines.ReadString('\n')
		if row, ok := strings.CutPrefix(line, "testkernel: row "); ok {
			s.rows = append(s.rows, row...)
		} else if _, err := io.WriteString(to, line); err != nil {
			return s, err
		}
		if last = append(last, line); strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: ") {
			s.failed = append(s.failed, last[max(0, len(last)-before):]...)
			last = nil
		}
		if status, ok := strings.CutPrefix(line, "testkernel: exit "); ok {
			status, _, _ = strings.Cut(status, " ")
			s.exits = append(s.exits, status)
		}
		if test, ok := strings.CutPrefix(strings.TrimSpace(line), "--- SKIP: "); ok {
			test, _, _ = strings.Cut(test, " ")
			s.skipped = append(s.skipped, test)
		}
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
	}
}

// keep adds what the guest measured to the rows of this run.
func keep(measured []byte) error {
	file := os.Getenv(measure.File)
	if len(measured) == 0 || file == "" {
		return nil
	}
	var rows []measure.Row
	if err := json.Unmarshal(measured, &rows); err != nil {
		return fmt.Errorf("reading what was measured in the guest: %w", err)
	}
	return measure.Keep(file, rows...)
}

// show prints what the kernel said.
func show(console *os.File) error {
	if _, err := console.Seek(0, io.SeekStart); err != nil {
		return err
	}
	fmt.Println("testkernel: the kernel said:")
	_, err := io.Copy(os.Stdout, console)
	return err
}
