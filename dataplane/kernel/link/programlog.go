//go:build linux

package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// wireguard-go logs a line for every few packets that it cannot send, thousands a second if
// its route is gone. programLog passes such a message on only if it has passed on no similar one in
// the last reminder, and all other lines.

const (
	// reminder is the time after which similar lines are passed on again, with their number.
	reminder = 5 * time.Minute
	// mostLines bounds what is remembered. Messages about different peers are not similar.
	mostLines = 4096
	// longestLine bounds a message.
	longestLine = 64 << 10
)

// programLog returns the file to be a program's standard error, and a file that the program is to
// have open, too: see logPipe. Both are to be closed once the program has started.
func programLog(out io.Writer) (w, keep *os.File, err error) {
	r, w, keep, err := logPipe()
	if err != nil {
		return nil, nil, err
	}
	go func() {
		defer r.Close()
		relay(r, out, time.Now)
	}()
	return w, keep, nil
}

// logPipe returns a pipe, and another file to read from it. A program that has the latter open is
// not ended by its next message if the agent is gone. In a pod it ends with the agent; elsewhere it
// waits once the pipe is full.
func logPipe() (r, w, keep *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	raw, err := r.SyscallConn()
	if err == nil {
		ctl := raw.Control(func(fd uintptr) { keep, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) })
		err = errors.Join(err, ctl)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, r.Close(), w.Close())
	}
	return r, w, keep, nil
}

// messages is the prefix of the lines that the program logs, unlike the lines of a stack trace.
const messages = "ERROR: "

// relay passes lines on until the end of in.
func relay(in io.Reader, out io.Writer, now func() time.Time) {
	type passed struct {
		at   time.Time
		more int // similar lines since
	}
	seen := map[string]*passed{}
	lines := bufio.NewReaderSize(in, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\n"); !strings.HasPrefix(text, messages) {
			_, _ = out.Write(line)
		} else {
			p := seen[similar(text)]
			switch at := now(); {
			case p != nil && at.Sub(p.at) < reminder:
				p.more++
			case p != nil && p.more > 0:
				fmt.Fprintf(out, "%s (and %d similar messages since %s)\n", text, p.more,
					p.at.UTC().Format(time.RFC3339))
				*p = passed{at: at}
			default:
				if len(seen) >= mostLines {
					clear(seen)
				}
				seen[similar(text)] = &passed{at: at}
				fmt.Fprintln(out, text)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// similar returns the same for lines that differ only in numbers, such as the time.
func similar(line string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, line)
}
