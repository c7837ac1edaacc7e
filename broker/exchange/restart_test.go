package exchange_test

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

// running returns the goroutines of exchanges, as text.
func running() (out []string) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, s := range bytes.Split(stacks, []byte("\n\n")) {
		if text := string(s); strings.Contains(text, "exchange.(*Exchange)") ||
			strings.Contains(text, "exchange.(*mirror)") {
			out = append(out, text)
		}
	}
	return out
}

// silent returns the address of a broker that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestRunStopsAtOnceAndLeavesNothingRunning(t *testing.T) {
	d := brokertest.Deploy(t, kubetest.Shared(t))
	gate := kubetest.NewGate(t, d.Server)
	s := newSite(t, d, gate, "east")
	answering := s.config.Broker
	for name, broker := range map[string]*rest.Config{
		"answers":       answering,
		"never answers": {Host: "https://" + silent(t)},
	} {
		s.config.Broker = broker
		s.start()
		if name == "answers" {
			s.eventuallyHealthy(true)
		} else {
			time.Sleep(time.Second)
		}
		require.NotEmpty(t, running(), "a broker that %s", name)
		began := time.Now()
		s.stop()
		require.Less(t, time.Since(began), 15*time.Second, "a broker that %s", name)
		require.Eventually(t, func() bool { return len(running()) == 0 }, patience, tick, "a broker that %s", name)
	}
}

// Another Exchange, for another broker, deletes nothing before it has read that broker.
func TestAnotherExchangeDeletesNothingUnread(t *testing.T) {
	first := brokertest.Deploy(t, kubetest.Shared(t))
	second := brokertest.Deploy(t, kubetest.Shared(t))
	s := newSite(t, first, kubetest.NewGate(t, first.Server), "east")
	require.NoError(t, first.Admin.Create(t.Context(), cluster(first.NS, "west")))
	require.NoError(t, first.Admin.Create(t.Context(), shared(first.NS, "west", "of-west")))
	s.start()
	s.create(cluster(s.ns, "east"))
	s.eventually("east", "west")
	s.holds("of-west.west.default vxlan west")
	s.stop()

	gate := kubetest.NewGate(t, second.Server)
	s.config = newSite(t, second, gate, "east").config
	s.config.Namespace = s.ns
	require.NoError(t, second.Admin.Create(t.Context(), cluster(second.NS, "north")))
	gate.Shut()
	s.start()
	s.eventuallyHealthy(false)
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, []string{"east", "west"}, s.names())
	require.Equal(t, []string{"of-west.west.default vxlan west"}, s.policies())
	gate.Open(t, second.Server)
	s.eventually("east", "north")
	s.holds()
	s.stop()
	require.NoError(t,
		first.Admin.Get(t.Context(), client.ObjectKey{Namespace: first.NS, Name: "east"}, cluster("", "")),
		"the other broker is left alone")
}
