package cli

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestLacks(t *testing.T) {
	root := &cobra.Command{Use: "subctl"}
	group := &cobra.Command{Use: "group"}
	leaf := &cobra.Command{Use: "leaf", RunE: func(*cobra.Command, []string) error { return nil }}
	group.AddCommand(leaf)
	root.AddCommand(group)
	require.Empty(t, WhyLacking(leaf, "output"))
	require.False(t, Offline(leaf))
	require.True(t, Offline(group), "a group prints its help")

	Lacks(group, "output", "it prints text")
	ContactsNoCluster(leaf, ": see elsewhere")
	require.Equal(t, "it prints text", WhyLacking(leaf, "output"))
	require.Empty(t, WhyLacking(root, "output"))
	require.True(t, Offline(leaf))
	for args, want := range map[string]string{
		"--output=json": "subctl group leaf has no --output: it prints text",
		"-ojson":        "subctl group leaf has no --output: it prints text",
		"--contexts=x":  "subctl group leaf has no --contexts: it contacts no cluster: see elsewhere",
		"--other":       `unknown flag: --other: see "subctl group leaf --help"`,
	} {
		err := FlagError(leaf, leaf.ParseFlags([]string{args}))
		require.EqualError(t, err, want)
	}
}

func TestExitCodes(t *testing.T) {
	mistake := errors.New("mistake")
	for _, test := range []struct {
		err      error
		code     int
		reported bool
	}{
		{nil, ExitDone, false},
		{mistake, ExitFailed, false},
		{UsageError(mistake), ExitUsage, false},
		{errors.Join(mistake, UsageError(mistake)), ExitUsage, false},
		{Waited(t.Context(), mistake), ExitTrouble, false},
		{Waited(t.Context(), nil), ExitDone, false},
		{Trouble(), ExitTrouble, true},
	} {
		require.Equal(t, test.code, ExitCode(test.err))
		require.Equal(t, test.reported, Reported(test.err))
	}
}
