package cmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// TestElsewhere types commands of Submariner's subctl, with their flags, and other names of ours:
// the message tells what to use.
func TestElsewhere(t *testing.T) {
	for path, use := range elsewhere {
		for _, more := range []string{"", " all", " --context west --tocontext east", " --help-me"} {
			got := runIn(t, nil, []string{"west"}, strings.Fields(strings.TrimPrefix(path, "subctl ")+more)...)
			require.Equal(t, result{code: cli.ExitUsage, stderr: "Error: " + path + " is not in this version: " +
				use + "\n"}, got, path+more)
		}
		require.Regexp(t, `^(use|run|open|for|subctl) `, use)
	}
	version := runIn(t, nil, nil, "version")
	require.Equal(t, version, runIn(t, nil, nil, "--version"))
}
