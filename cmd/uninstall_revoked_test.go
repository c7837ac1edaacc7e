package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/cli"
)

// A cluster that was revoked uninstalls at once, while the API server of the broker still accepts
// the token of its account, and joins again.
func TestUninstallAfterRevoke(t *testing.T) {
	w := newJoinWorld(t)
	file, err := broker.ReadOldJoinFile(w.file, nil)
	require.NoError(t, err)
	const hub = submarinerv1.BrokerNamespace
	done := func(args ...string) {
		t.Helper()
		r := w.run(t, args...)
		require.Equal(t, cli.ExitDone, r.code, r.stderr)
	}
	done("join", w.file, "--clusterid", "west", "--wait=false")
	creds := &corev1.Secret{}
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKey{
		Namespace: cluster.Namespace,
		Name:      cluster.BrokerSecret,
	}, creds))
	member, err := client.New(w.hub.As(string(creds.Data["token"])), client.Options{Scheme: w.hubC.Scheme()})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return member.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(hub)) == nil
	}, time.Minute, 20*time.Millisecond, "the API server remembers the token")
	require.NoError(t, broker.Revoke(t.Context(), w.hubC, hub, []string{submarinerv1.DefaultClusterSet}, "west",
		file.AdministratorKey(), time.Now()))
	done("uninstall", "--yes")
	done("join", w.file, "--clusterid", "west", "--wait=false")
}
