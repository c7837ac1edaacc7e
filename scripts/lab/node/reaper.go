package node

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper starts a node's processes and collects every process that ends in the node: as the first
// process of a pid namespace we inherit those nobody waits for. os/exec cannot be used beside it,
// they would take each other's children.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan<- unix.WaitStatus
}

// start runs a program and tells how it ended.
func (r *reaper) start(log string, argv ...string) (<-chan unix.WaitStatus, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r.mu.Lock() // until it is registered: it may have ended by then
	defer r.mu.Unlock()
	process, err := os.StartProcess(argv[0], argv,
		&os.ProcAttr{Dir: "/", Env: os.Environ(), Files: []*os.File{null, out, out}})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	ended := make(chan unix.WaitStatus, 1)
	r.waiting[process.Pid] = ended
	return ended, process.Release()
}

// run waits for a program to succeed.
func (r *reaper) run(log string, argv ...string) error {
	ended, err := r.start(log, argv...)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%v ended with status %d: see %s", argv, status.ExitStatus(), log)
	}
	return nil
}

// collect never returns.
func (r *reaper) collect(childEnded <-chan os.Signal) {
	for range childEnded {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
			r.mu.Lock()
			if ended, ok := r.waiting[pid]; ok {
				ended <- status
				delete(r.waiting, pid)
			}
			r.mu.Unlock()
		}
	}
}
