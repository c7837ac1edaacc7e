package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// The commands of trust refuse arguments that cannot be meant, before they contact a cluster. The
// value of an unset variable does not permit everything.
func TestTrustArguments(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{
			[]string{"invite", "north", "--networks", ""},
			"--networks is empty: specify a value (is a variable not set?)",
		},
		{
			[]string{"invite", "north", "--clusterset", ""},
			"--clusterset is empty: specify a value (is a variable not set?)",
		},
		{[]string{"invite", "north", "-o", "json"}, "--output requires --dry-run"},
		{
			[]string{"invite", "north", "--join-file", ""},
			"--join-file is empty: specify a value (is a variable not set?)",
		},
		{
			[]string{"revoke", ""},
			`cluster ID "" is not a DNS-1123 label: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		{
			[]string{"revoke", "Bad\x1b[31m", "--force", "--yes"},
			`cluster ID "Bad\x1b[31m" is not a DNS-1123 label: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
	} {
		got := runIn(t, world{"hub": nil}, []string{"hub"}, append(test.args, "--context", "hub")...)
		require.Equal(t, result{code: cli.ExitUsage, stderr: "Error: " + test.want + "\n"}, got)
	}
}

// Commands for a broker name the remedy where there is none.
func TestNoBroker(t *testing.T) {
	for _, args := range [][]string{{"revoke", "east"}, {"revoke", "--join-files"}} {
		got := runIn(t, world{"west": nil}, []string{"west"}, append(args, "--context", "west")...)
		require.Equal(
			t,
			result{
				code: cli.ExitFailed,
				stderr: "Error: this cluster has no broker in namespace submariner-k8s-broker: " +
					"specify the cluster of the broker with --context, and its namespace with --namespace\n",
			},
			got,
		)
	}
}

// The error about a missing join file names the file that is needed, and how to specify it.
func TestNoJoinFile(t *testing.T) {
	t.Chdir(t.TempDir())
	got := runIn(t, world{"hub": nil}, []string{"hub"}, "invite", "north", "--context", "hub")
	require.Equal(
		t,
		result{
			code: cli.ExitFailed,
			stderr: "Error: the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it: " +
				"there is no file broker-info.subm; specify another path with --broker-info\n",
		},
		got,
	)
}
