package cmd

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// An invitation creates nothing on the broker before its file can be written, warns if the cluster
// is a member, and can be withdrawn, after which nobody can join with it.
func TestInvitations(t *testing.T) {
	h := newHub(t)
	h.done(t, "deploy-broker")
	invited := func() []string {
		t.Helper()
		state, err := broker.Look(t.Context(), h.client, submarinerv1.BrokerNamespace)
		require.NoError(t, err)
		return state.Invited
	}

	r := h.run(t, nil, "invite", "north", "--join-file", "/sys/kernel/north.subm") // also root can create no file there
	require.Equal(t, cli.ExitFailed, r.code, r.stderr)
	require.Contains(t, r.stderr, "/sys/kernel/north.subm")
	require.NotContains(t, r.stderr, ".tmp-", "a name that the user does not know")
	require.Contains(t, r.stderr, "(nothing was changed)")
	require.Empty(t, invited())

	r = h.done(t, "invite", "north", "--dry-run")
	require.Contains(t, r.stdout, "write north.subm")
	require.Empty(t, invited())
	require.NoFileExists(t, "north.subm")

	h.done(t, "invite", "north")
	require.Equal(t, []string{"north"}, invited())
	file, err := broker.ReadOldJoinFile("north.subm", nil)
	require.NoError(t, err)
	joiner := kubetest.Client(t, h.server.As(string(file.Token)))
	readBy := func(c client.Client) error {
		_, err := readBroker(t.Context(), c, submarinerv1.BrokerNamespace)
		return err
	}
	require.NoError(t, readBy(joiner), "the token is good")
	require.Contains(t, h.done(t, "uninvite", "north", "--dry-run").stdout,
		"make the join files void that subctl invite wrote for cluster north")
	require.Equal(t, []string{"north"}, invited())
	require.Contains(t, h.done(t, "uninvite", "north").stderr, " ✓ withdrew the invitation of cluster north\n")
	require.Empty(t, invited())
	require.Error(t, readBy(joiner), "the token of the file has ended")

	_, err = broker.AddMember(t.Context(), h.client, submarinerv1.BrokerNamespace, "north", "uid", broker.Reservation{})
	require.NoError(t, err)
	require.NoError(t, os.Remove("north.subm"))
	r = h.done(t, "invite", "north")
	require.Contains(t, r.stderr, " ⚠ cluster north is a member already, and stays connected: the file lets it join "+
		"again, to change or repair it; to withdraw the file, run subctl uninvite north\n")
	require.Contains(t, h.done(t, "uninvite", "north").stderr,
		" ✓ withdrew the invitation of cluster north, which stays a member\n")
}
