package cmd

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
)

// TestWait changes the cable of a pair, whose gateway in west reports a driver and a policy
// from before the change on.
func TestWait(t *testing.T) {
	eastWest := []string{
		"--left-cluster-selector", "submariner-io/clusterID=east", "--right-cluster-selector",
		"submariner-io/clusterID=west,env,tier",
	}
	for _, test := range []struct {
		name, driver, policy string // that the gateway reports
		args                 []string
		interrupt            bool
		code                 int
		want                 string
		unchanged            bool
	}{
		{
			name:   "reached",
			driver: "vxlan",
			policy: "x",
			args:   eastWest,
			want:   " • waiting for the new cables of 1 pair …\n ✓ east - west: vxlan (x)\n ⚠ east - west: as cluster west reports; not checked in cluster east, of which the kubeconfig has no usable context\n",
		},
		{
			name:   "out of time",
			driver: "wireguard",
			policy: "secure",
			args:   append([]string{"--timeout", "1s"}, eastWest...),
			code:   cli.ExitTrouble,
			want: "Error: waiting for the new cables: out of time: the change is written, and takes effect without this command; not reached yet:\n" +
				"  east - west: cluster west: gateway gw-1: uses wireguard (secure)\nsee subctl show connections\n",
		},
		{
			name: "interrupted", driver: "wireguard", policy: "secure", args: eastWest, interrupt: true,
			code: cli.ExitInterrupted,
			want: "Error: waiting for the new cables: interrupted: the change is written, and takes effect without this command; not reached yet:\n  east - west: not known\n",
		},
		{
			name: "a pair that nobody sees",
			args: []string{
				"--cable-driver", "wireguard", "--left-cluster-selector", "env=cloud,!a,!b",
				"--right-cluster-selector", "tier=core",
			},
			want: "created cable policy x on cluster west, for clusterset blue, default\n ⚠ not waiting for 1 pair, " +
				"as the kubeconfig has no usable context of either cluster: cloud - east\n",
		},
		{
			name: "nothing changes",
			args: []string{"--left-cluster-selector", "env=mars"},
			want: "created cable policy x",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
			c.Driver = test.driver
			c.Policy = test.policy
			w := world{"west": append(policyWorlds()["west"], gateway("west", "gw-1", 0, c))}
			g, _, stderr := testGlobals(t, w, "west", "cloud")
			unsetWait(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.interrupt {
				g.ErrOut = writer(func(text []byte) (int, error) {
					if strings.Contains(string(text), "waiting for") {
						cancel()
					}
					return stderr.Write(text)
				})
			}
			code := run(ctx, g,
				append([]string{"cable-policy", "add", "--name", "x", "--cable-driver", "vxlan", "--force"},
					test.args...))
			require.Equal(t, test.code, code, stderr)
			require.Contains(t, stderr.String(), test.want)

			cfg, err := g.RestConfigFor("west")
			require.NoError(t, err)
			west, err := g.Connect(t.Context(), cfg)
			require.NoError(t, err)
			err = west.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "x"},
				&v1alpha1.CablePolicies{})
			require.NoError(t, client.IgnoreNotFound(err))
			require.Equal(t, test.unchanged, err != nil)
		})
	}
}

// unsetWait lets commands wait, which is their default.
func unsetWait(t *testing.T) {
	t.Setenv("SUBCTL_WAIT", "") // to restore it
	require.NoError(t, os.Unsetenv("SUBCTL_WAIT"))
}

// writer is a function that is an io.Writer.
type writer func([]byte) (int, error)

// Write implements io.Writer.
func (f writer) Write(text []byte) (int, error) { return f(text) }
