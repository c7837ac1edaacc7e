package cmd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/agent/role"
	"subctl/agent/roles"
	cnf "subctl/sdewan/cnf/agent"
)

// A role has a subcommand of "subctl agent", and the flags of its parts.
func TestAgentRoles(t *testing.T) {
	c := newAgent(&globals{})
	for _, role := range roles.All() {
		sub, _, err := c.Find([]string{role.Name})
		require.NoError(t, err)
		require.Equal(t, role.Name, sub.Name())
		require.Equal(t, role.Nodeless(), strings.HasSuffix(sub.Short, " of the cluster"), sub.Short)
	}
	for _, test := range []struct {
		part role.Part
		flag string
	}{{role.Election, "lease-duration"}, {role.KeyRing, "secrets"}, {role.Exchange, "broker-secret"}} {
		with := newAgentRole(&globals{}, role.Role{Name: "toy", MetricsPort: 32799, Parts: []role.Part{test.part}})
		require.NotNil(t, with.Flag(test.flag), "%s", test.part)
		without := newAgentRole(&globals{}, role.Role{Name: "toy", MetricsPort: 32799, ProbePort: 32798})
		require.Nil(t, without.Flag(test.flag), "%s", test.part)
		require.Equal(t, ":32799", without.Flag("metrics-address").DefValue)
		require.Equal(t, "127.0.0.1:32798", without.Flag("probe-address").DefValue,
			"probes are for the kubelet of the node only")
	}
}

// A file that cannot be used is reported with the flag that names it.
func TestAgentCNFFiles(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for flags, want := range map[string]string{
		"--networks-file " +
			none: "reading --networks-file: open " + none + ": no such file or directory",
		"--uplinks-file " +
			none: "reading --uplinks-file: open " + none + ": no such file or directory",
		"--open --state-file " + none + "/state": "writing --state-file " + none + "/state: ",
	} {
		o := &cnfAgent{
			globals: newGlobals(genericiooptions.NewTestIOStreamsDiscard()),
			kernel:  func() (cnf.Kernel, error) { return cnf.Kernel{}, nil },
		}
		c := &cobra.Command{}
		o.addFlags(c)
		require.NoError(t, c.ParseFlags(strings.Fields("--password-file p --tls-cert c --tls-key k "+flags)))
		require.ErrorContains(t, o.run(t.Context()), want, flags)
	}
}

// An object in the state file that this version does not accept does not keep the CNF from
// starting, and is named in the log.
func TestAgentCNFLeavesOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	require.NoError(
		t,
		os.WriteFile(file,
			[]byte(`{"version":1,"objects":{"mwan3/rules":[{"name":"bad"},{"name":"good","policy":"default"}]}}`),
			0o600),
	)
	streams, _, _, log := genericiooptions.NewTestIOStreams()
	o := &cnfAgent{globals: newGlobals(streams), kernel: func() (cnf.Kernel, error) { return cnf.Kernel{}, nil }}
	c := &cobra.Command{}
	o.addFlags(c)
	require.NoError(
		t,
		c.ParseFlags(
			[]string{
				"--password-file=p",
				"--tls-cert=c",
				"--tls-key=k",
				"--https=192.0.2.1:x",
				"--state-file=" + file,
			}),
	)
	require.ErrorContains(t, o.run(t.Context()), "listening for the REST API", "after the file was read")
	require.Contains(t, log.String(), `"object":"mwan3/rules/bad: policy: required"`)
	require.Contains(t, log.String(), file+".before")
	require.NotContains(t, log.String(), "good")
}

// Submariner.spec.debug makes the agents log more, and less again; a level that is configured
// as more detailed stays.
func TestAgentDebug(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	log, err := newLogger(&out, "text", "info", &level)
	require.NoError(t, err)
	set := followDebug(&level)
	for _, step := range []struct {
		debug bool
		want  int
	}{{false, 0}, {true, 1}, {true, 2}, {false, 2}} {
		set(step.debug)
		log.Debug("looked")
		require.Equal(t, step.want, strings.Count(out.String(), "looked"))
	}
}

// The DNS server takes the flags that its pods have, and reports all mistakes at once.
func TestAgentDNS(t *testing.T) {
	c := newAgentDNS(newGlobals(genericiooptions.NewTestIOStreamsDiscard()))
	require.Equal(t, ":5353", c.Flag("listen").DefValue)
	require.Equal(t, ":32788", c.Flag("metrics-address").DefValue)
	require.NoError(t, c.ParseFlags([]string{"--cluster-id", "east", "--cluster-names", "--probe-address", ":32789"}))

	c = newAgentDNS(newGlobals(genericiooptions.NewTestIOStreamsDiscard()))
	require.NoError(t, c.ParseFlags([]string{"--log-level", "loud"}))
	err := c.RunE(c, nil)
	require.ErrorContains(t, err, "--cluster-id is missing")
	require.ErrorContains(t, err, "--log-level")
}
