package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// ending is a kernel that is told to end its daemon.
type ending struct {
	dataplanetest.Fake
	fails error
	hangs bool
	never chan struct{} // is closed when the test ends
	ended atomic.Int64
}

func (k *ending) Apply(ctx context.Context, op dataplane.Op) error {
	if _, daemon := op.Old.(dataplane.IKEDaemon); daemon && op.New == nil {
		k.ended.Add(1)
		if k.hangs {
			<-k.never
		}
		return k.fails
	}
	return k.Fake.Apply(ctx, op)
}

// An agent that cannot watch its kernel any more ends, so that another one begins, and ends its
// tunnels before. Tunnels in transport mode stay: their packets would leave in clear.
func TestAgentEnds(t *testing.T) {
	for name, test := range map[string]struct {
		mode  string
		fails error
		hangs bool
		ended int
	}{
		"tunnels": {mode: dataplane.TunnelMode, ended: 1},
		"tunnels, and a daemon that fails": {
			mode:  dataplane.TunnelMode,
			fails: errors.New("charon does not answer"),
			ended: 1,
		},
		"tunnels, and a daemon that hangs": {mode: dataplane.TunnelMode, hangs: true, ended: 1},
		"transport":                        {mode: dataplane.TransportMode},
		"nothing":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			k := &ending{fails: test.fails, hangs: test.hangs, never: make(chan struct{})}
			news := make(chan struct{})
			defer close(k.never)
			c := rest.Config{}
			if test.mode != "" {
				c.Remotes = []rest.Remote{
					{Name: "hub", Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
						{
							Name:         "a",
							Type:         test.mode,
							Mode:         "start",
							LocalSubnet:  "192.0.2.2/32",
							RemoteSubnet: "192.0.2.1/32",
						},
					}},
				}
			}
			a := New(Options{
				Log: slog.New(slog.DiscardHandler), Config: func() rest.Config { return c },
				Kernel: Kernel{
					Target: func(dataplane.Owner) (dataplane.Target, error) { return k, nil },
					Network: func() (dataplane.Network, error) {
						return dataplane.Network{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}}, nil
					},
					Watch:           func(context.Context, time.Duration) (<-chan struct{}, error) { return news, nil },
					MarkConnections: func(uint32, uint32) error { return nil },
					Forward:         func([]string) error { return nil },
				},
			})
			end := sync.OnceFunc(func() { close(news) })
			a.passed = func(rest.Config) { end() }
			ended := make(chan error, 1)
			go func() { ended <- a.Run(t.Context()) }()
			select {
			case err := <-ended:
				require.ErrorContains(t, err, "no longer watched")
			case <-time.After(30 * time.Second):
				t.Fatal("it hangs")
			}
			require.EqualValues(t, test.ended, k.ended.Load())
			report, err := a.Report()
			require.NoError(t, err)
			require.Empty(t, report, "the plan has the connection")
		})
	}
}
