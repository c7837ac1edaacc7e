//go:build linux

package link

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lines that repeat are passed on once in a while, with their number; other lines are passed on at
// once.
func TestRelay(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	in, w := io.Pipe()
	at := start
	ended := make(chan struct{})
	go func() { defer close(ended); relay(in, &out, func() time.Time { return at }) }()
	for _, line := range []struct {
		after time.Duration
		text  string
	}{
		{0, "ERROR: 12:00:00 peer(a…b) - Failed to send data packets: network is unreachable"},
		{1 * time.Second, "ERROR: 12:00:01 peer(a…b) - Failed to send data packets: network is unreachable"},
		{2 * time.Second, "ERROR: 12:00:02 peer(c…d) - Failed to send data packets: network is unreachable"},
		{3 * time.Second, "ERROR: 12:00:03 peer(a…b) - Failed to send data packets: operation not permitted"},
		{4 * time.Second, "ERROR: 12:00:04 peer(a…b) - Failed to send data packets: network is unreachable"},
		{301 * time.Second, "ERROR: 12:05:01 peer(a…b) - Failed to send data packets: network is unreachable"},
		{302 * time.Second, "ERROR: 12:05:02 peer(a…b) - Failed to send data packets: network is unreachable"},
		{303 * time.Second, "ERROR: 12:05:03 peer(a…b) - Failed to send data packets: operation not permitted"},
	} {
		_, err := io.WriteString(w, "goroutine 1 [running]:\n") // once it is read, the line before is done with
		require.NoError(t, err)
		at = start.Add(line.after)
		_, err = io.WriteString(w, line.text+"\n")
		require.NoError(t, err)
	}
	_, err := io.WriteString(w, "the last words, without an end")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	<-ended
	require.Equal(t, `ERROR: 12:00:00 peer(a…b) - Failed to send data packets: network is unreachable
ERROR: 12:00:02 peer(c…d) - Failed to send data packets: network is unreachable
ERROR: 12:00:03 peer(a…b) - Failed to send data packets: operation not permitted
ERROR: 12:05:01 peer(a…b) - Failed to send data packets: network is unreachable (and 2 similar messages since 2026-03-01T12:00:00Z)
ERROR: 12:05:03 peer(a…b) - Failed to send data packets: operation not permitted
the last words, without an end`, strings.ReplaceAll(out.String(), "goroutine 1 [running]:\n", ""))
	require.Equal(t, 8, strings.Count(out.String(), "goroutine 1"), "lines that are no messages are all passed on")
}

// A program goes on if nobody reads what it writes any more.
func TestProgramLogWithoutReader(t *testing.T) {
	r, w, keep, err := logPipe()
	require.NoError(t, err)
	program := exec.Command("sh", "-c", "read go; echo a message >&2 && echo alive")
	in, err := program.StdinPipe()
	require.NoError(t, err)
	var out strings.Builder
	program.Stdout = &out
	program.Stderr = w
	program.ExtraFiles = []*os.File{keep}
	require.NoError(t, program.Start())
	for _, f := range []*os.File{r, w, keep} { // as if the agent ended
		require.NoError(t, f.Close())
	}
	_, err = io.WriteString(in, "go\n")
	require.NoError(t, err)
	require.NoError(t, program.Wait())
	require.Equal(t, "alive\n", out.String())
}
