package cmd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/internal/cli"
)

// The flags in the help of a command fit a terminal of 100 columns, and those of join are in
// groups, each once.
func TestHelpFits(t *testing.T) {
	cli.Each(newRoot(newGlobals(genericiooptions.IOStreams{})), func(c *cobra.Command) {
		r := runIn(t, nil, nil, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		_, flags, _ := strings.Cut(r.stdout, "\nFlags:\n")
		for line := range strings.SplitSeq(flags, "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 100, "%s: %s", c.CommandPath(), line)
		}
	})
	r := runIn(t, nil, nil, "join", "--help")
	at := -1
	for _, title := range []string{
		"\nFlags:\n", "\nThis cluster:\n", "\nGateways:\n", "\nThe broker:\n", "\nCables:\n", "\nIPsec:\n",
		"\nGlobal network:\n", "\nHealth check:\n",
	} {
		next := strings.Index(r.stdout, title)
		require.Greater(t, next, at, title)
		at = next
	}
	c, _, err := newRoot(newGlobals(genericiooptions.IOStreams{})).Find([]string{"join"})
	require.NoError(t, err)
	for line := range strings.SplitSeq(c.LocalFlags().FlagUsages(), "\n") {
		if name, _, is := strings.Cut(strings.TrimSpace(line), " "); is && strings.HasPrefix(name, "--") {
			require.Equal(t, 1, strings.Count(r.stdout, "\n      "+name+" "), name)
		}
	}
}

// Names of files are offered only where a file is meant.
func TestCompletionOffersFewFiles(t *testing.T) {
	for line, files := range map[string]bool{
		"join |": true, "invite |": false, "show globalnet |": false, "sdewan show rules |": false,
		"show connections |": false, "uninstall |": false,
		"cable-policy add x --left-cluster-selector |": false, "cable-policy add -f |": true,
		"invite north --join-file |": true, "invite north --networks |": false,
		"join x --image |": false, "deploy-broker --broker-info |": true, "show all --kubeconfig |": true,
	} {
		r := runIn(t, world{"west": nil}, []string{"west"},
			append([]string{"__complete"}, strings.Split(strings.TrimSuffix(line, "|"), " ")...)...)
		require.Equal(t, files, strings.HasSuffix(r.stdout, ":0\n"), "%s: %s", line, r.stdout)
	}
}
