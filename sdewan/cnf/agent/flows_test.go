package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"subctl/dataplane"
	"subctl/sdewan"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// flowAgent returns an agent of a CNF that forwards from net0 to net1, with a flow table if the kernel has no reason against it; calls counts those of
// Kernel.AcceptResets, and holds reports whether the kernel holds a flow table.
func flowAgent(wanted bool, reason error) (a *Agent, target *refusing, log *bytes.Buffer, calls *int) {
	log, calls, target = &bytes.Buffer{}, new(int), &refusing{refuses: func(dataplane.Object) bool { return false }}
	var network dataplane.Network
	for name, prefix := range map[string]string{"net0": "192.168.1.254/24", "net1": "198.51.100.2/24"} {
		p := netip.MustParsePrefix(prefix)
		network.Devices = append(network.Devices, dataplane.NetDevice{Name: name, Up: true, Addrs: []netip.Prefix{p}})
		network.Routes = append(network.Routes, dataplane.NetRoute{Table: 254, Type: "unicast", Dst: p.Masked(), Dev: name})
	}
	config := rest.Config{
		Zones:       []rest.Zone{{Name: "lan", Network: []string{"net0"}}, {Name: "wan", Network: []string{"net1"}, Masq: "1"}},
		Forwardings: []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}},
	}
	a = New(Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), Config: func() rest.Config { return config }, FlowTable: wanted,
		Attachments: []sdewan.Attachment{{Network: "lan", Device: "net0"}, {Network: "wan1", Device: "net1"}},
		Kernel: Kernel{
			Target:  func(dataplane.Owner) (dataplane.Target, error) { return target, nil },
			Network: func() (dataplane.Network, error) { return network, nil },
			Watch:   func(context.Context, time.Duration) (<-chan struct{}, error) { return make(chan struct{}), nil },
			Forward: func([]string) error { return nil }, Announce: func(string, netip.Addr) error { return nil },
			MarkConnections: func(uint32, uint32) error { return nil },
			FlowTables:      func(context.Context) error { return reason },
			AcceptResets:    func(context.Context) error { *calls++; return errors.New("no buffer space") },
		},
	})
	return a, target, log, calls
}

// runFlows runs an agent for a time in a bubble of package synctest.
func runFlows(t *testing.T, a *Agent, d time.Duration, then func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	time.Sleep(d)
	synctest.Wait()
	then()
}

// A CNF has no flow table unless one is wanted, and does nothing for one.
func TestFlowTableOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, calls := flowAgent(false, nil)
		a.Kernel.FlowTables = nil // is not asked
		runFlows(t, a, time.Minute, func() {
			require.True(t, a.Ready())
			require.Nil(t, held(t, target).FlowTables)
			require.Zero(t, *calls)
			require.NotContains(t, log.String(), "flow table")
		})
	})
}

// With a kernel that handles them, there is one, and connections in it can be reset. That this fails is logged once, and delays nothing.
func TestFlowTableWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, calls := flowAgent(true, nil)
		runFlows(t, a, time.Minute+time.Second, func() {
			require.True(t, a.Ready())
			_, err := a.Report()
			require.NoError(t, err)
			require.Equal(t, []string{"net0", "net1"}, held(t, target).FlowTables[0].Devices)
			require.Equal(t, 6, *calls)
			require.Equal(t, 1, strings.Count(log.String(), "no buffer space"))
		})
	})
}

// A kernel that has none, or is not known to handle them, is no error: the log has the reason once.
func TestFlowTableNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, calls := flowAgent(true, errors.New("Linux 5.17 is older than 5.18"))
		runFlows(t, a, time.Minute, func() {
			require.True(t, a.Ready())
			_, err := a.Report()
			require.NoError(t, err)
			require.Nil(t, held(t, target).FlowTables)
			require.Zero(t, *calls)
			require.Equal(t, 1, strings.Count(log.String(), "Linux 5.17 is older than 5.18"))
		})
	})
}

// A kernel that is slow to say whether it handles flow tables does not delay the rules.
func TestFlowTableProbeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, _, _ := flowAgent(true, nil)
		a.Kernel.FlowTables = func(context.Context) error { time.Sleep(time.Minute); return nil }
		runFlows(t, a, time.Second, func() {
			require.True(t, a.Ready())
			require.NotEmpty(t, held(t, target).Chains)
		})
	})
}

// If the kernel refuses the rules with a flow table, it gets them without, the log has the reason once, and the flow table is tried again later.
func TestFlowTableRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, calls := flowAgent(true, nil)
		refused, refuse := 0, true
		target.refuses = func(o dataplane.Object) bool {
			r, is := o.(dataplane.Ruleset)
			if no := is && refuse && len(r.FlowTables) > 0; no {
				refused++
				return true
			}
			return false
		}
		runFlows(t, a, flowsAgain-time.Second, func() {
			require.True(t, a.Ready())
			_, err := a.Report()
			require.NoError(t, err)
			require.Nil(t, held(t, target).FlowTables)
			require.NotEmpty(t, held(t, target).Chains)
			require.Equal(t, 2, refused, "it is not tried at each pass")
			require.Zero(t, *calls)
			time.Sleep(2 * flowsAgain)
			require.Greater(t, refused, 2)
			require.Equal(t, 1, strings.Count(log.String(), "the kernel refuses the rules with one"))
			refuse = false
			time.Sleep(2 * flowsAgain)
			synctest.Wait()
			require.NotEmpty(t, held(t, target).FlowTables)
			refuse = true
			require.NoError(t, target.Fake.Apply(t.Context(), dataplane.Op{Old: held(t, target)}))
			a.Changed()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 2, strings.Count(log.String(), "the kernel refuses the rules with one"), "it says so when it happens again")
		})
	})
}

// If the kernel refuses all rules, the flow table is not the reason, and is tried with the next pass.
func TestFlowTableNotTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, _ := flowAgent(true, nil)
		target.refuses = func(o dataplane.Object) bool { _, is := o.(dataplane.Ruleset); return is }
		runFlows(t, a, time.Second, func() {
			require.NotContains(t, log.String(), "no flow table")
			target.refuses = func(dataplane.Object) bool { return false }
			a.Changed()
			time.Sleep(time.Second)
			synctest.Wait()
			require.NotEmpty(t, held(t, target).FlowTables)
		})
	})
}

// Rules that fail because another program has changed them just then are no reason to do without a flow table.
func TestFlowTableRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, target, log, _ := flowAgent(true, nil)
		refused := 0
		target.refuses = func(o dataplane.Object) bool {
			r, is := o.(dataplane.Ruleset)
			if is && len(r.FlowTables) > 0 {
				refused++
			}
			return refused == 1
		}
		runFlows(t, a, time.Second, func() {
			require.Greater(t, refused, 1)
			require.NotEmpty(t, held(t, target).FlowTables)
			require.NotContains(t, log.String(), "no flow table")
		})
	})
}

// held returns the rules that the kernel holds.
func held(t *testing.T, k *refusing) dataplane.Ruleset {
	t.Helper()
	state, err := k.Observe(t.Context())
	require.NoError(t, err)
	for _, o := range state {
		if r, is := o.(dataplane.Ruleset); is {
			return r
		}
	}
	require.Fail(t, "there are no rules")
	return dataplane.Ruleset{}
}
