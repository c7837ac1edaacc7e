//go:build linux

package strongswan

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func made(id, spis string, age time.Duration, child string) SA {
	sa := SA{ID: id, SPIs: spis, State: "ESTABLISHED", Age: age}
	if child != "" {
		sa.Children = []ChildSA{{Name: child, Up: true}}
	}
	return sa
}

func TestOutdated(t *testing.T) {
	rekeyed := made("1", "a", time.Hour, "")
	rekeyed.State = "REKEYED"
	for name, test := range map[string]struct {
		sas   []SA
		want  []string
		later bool
	}{
		"nothing": {nil, nil, false},
		"one":     {[]SA{made("1", "a", time.Hour, "new")}, nil, false},
		"only old ones carry the traffic": {
			[]SA{made("1", "a", time.Hour, "old"), made("2", "b", time.Minute, "")},
			nil,
			false,
		},
		"a new one, which the other end may not have": {
			[]SA{made("1", "a", time.Hour, "old"), made("2", "b", time.Second, "new")},
			nil,
			true,
		},
		"a new one takes their place": {
			[]SA{made("1", "a", time.Hour, "old"), made("2", "b", sharedAfter, "new"), made("3", "c", time.Hour, "")},
			[]string{"1", "3"},
			false,
		},
		"two at once, which may be made still": {
			[]SA{made("1", "a", time.Hour, "new"), made("2", "b", time.Second, "new")},
			nil,
			false,
		},
		"two at once, for good": {
			[]SA{made("1", "a", time.Minute, "new"), made("2", "b", time.Minute, "new")},
			[]string{"1"},
			false,
		},
		"the same two, as the other end lists them": {
			[]SA{made("7", "b", time.Minute, "new"), made("8", "a", time.Minute, "new")},
			[]string{"8"},
			false,
		},
		"one whose successor charon has made already": {[]SA{rekeyed, made("2", "b", 0, "new")}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ids, later := outdated(test.sas, "new")
			require.Equal(t, test.want, ids)
			require.Equal(t, test.later, later)
		})
	}
}

// The negotiator initiates tunnels that are down, each end in its turn, and forgets tunnels that
// are no longer loaded.
func TestNegotiatorJudges(t *testing.T) {
	n := &negotiator{
		waits:    map[initiation]*wait{},
		problems: map[string]Problem{"": "x", "gone": "x", "up": "x", "down": "x"},
	}
	conns := map[string]Connection{
		"up":      {Child: "first-1"},
		"down":    {Child: "first-2"},
		"late":    {Child: "second-3"},
		"passive": {Child: "never-4"},
	}
	sas := map[string][]SA{"up": {made("1", "a", 0, "first-1")}, "down": {made("2", "b", 0, "first-old")}}
	now := time.Now()
	begin, end, well := n.judge(conns, sas, now)
	require.Equal(t, []initiation{{"down", "first-2"}}, begin)
	require.Empty(t, end, "old keys carry the traffic")
	require.False(t, well)
	require.Equal(t, map[string]Problem{"down": "x"}, n.problems)

	begin, _, _ = n.judge(conns, sas, now.Add(time.Millisecond))
	require.Empty(t, begin)
	begin, _, _ = n.judge(conns, sas, now.Add(secondAfter))
	require.ElementsMatch(t, []initiation{{"down", "first-2"}, {"late", "second-3"}}, begin)

	sas["down"] = append(sas["down"], made("3", "c", 0, "first-2"))
	delete(conns, "late")
	_, end, well = n.judge(conns, sas, now)
	require.Empty(t, end, "the other end may not have the new keys yet")
	require.False(t, well)
	sas["down"][1].Age = sharedAfter
	_, end, well = n.judge(conns, sas, now)
	require.Equal(t, []string{"2"}, end)
	require.False(t, well, "it is to be seen that it ends")
	_, _, _ = n.judge(conns, sas, now.Add(secondAfter+lookIdle))
	require.Empty(t, n.waits)
	sas["down"] = sas["down"][1:]
	_, end, well = n.judge(conns, sas, now)
	require.Empty(t, end)
	require.True(t, well)
}

// A negotiator that has ended is not taken for one that works: a daemon that cannot be found
// for a moment, such as while the agent has no file descriptor to spare, would stay without
// one.
func TestNegotiatorEnds(t *testing.T) {
	i := New(t.TempDir())
	daemon := exec.Command("sleep", "60") // it is the daemon by its environment
	daemon.Env = []string{"STRONGSWAN_CONF=" + i.conf()}
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	require.NoError(t, os.WriteFile(i.pidFile(), []byte(strconv.Itoa(daemon.Process.Pid)), 0o600))
	require.Eventually(t, func() bool { pid, _ := i.Process(); return pid != 0 }, 10*time.Second, time.Millisecond)
	i.Negotiate()
	t.Cleanup(i.Rest)
	require.True(t, i.Negotiating())

	require.NoError(t, os.Rename(i.pidFile(), i.pidFile()+".away"))
	time.Sleep(3 * lookBusy)
	require.NoError(t, os.Rename(i.pidFile()+".away", i.pidFile()))
	require.False(t, i.Negotiating())
	i.Negotiate()
	require.True(t, i.Negotiating())
}
