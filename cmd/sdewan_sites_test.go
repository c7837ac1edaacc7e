package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// Tunnels keep their keys when a site is added; only the user can read them; a file that somebody
// else wrote, and ends that disagree, stay as they are.
func TestSdewanSites(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "sites.yaml")
	out := filepath.Join(dir, "tunnels")
	const hub = "hubs: [{name: hq, address: 192.0.2.10, networks: [10.30.0.0/24]}]\nbranches:\n"
	const berlin = "- {name: berlin, networks: [192.168.1.0/24]}\n"
	const rome = "- {name: rome, networks: [192.168.2.0/24]}\n"
	sites := func(text string) (code int, stdout, stderr string) {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
		r := runIn(t, world{}, nil, "sdewan", "sites", list, "--directory", out)
		return r.code, r.stdout, r.stderr
	}
	read := func(site string) string {
		text, err := os.ReadFile(filepath.Join(out, site+".yaml"))
		require.NoError(t, err)
		return string(text)
	}
	keys := func(text string) (out []string) {
		for line := range strings.Lines(text) {
			if key, is := strings.CutPrefix(strings.TrimSpace(line), "pre_shared_key: "); is {
				out = append(out, key)
			}
		}
		return out
	}

	code, stdout, stderr := sites(hub + berlin)
	require.Equal(t, cli.ExitDone, code, stderr)
	first := keys(read("berlin"))
	require.Len(t, first, 1)
	require.NotContains(t, stdout+stderr, first[0])
	info, err := os.Stat(filepath.Join(out, "berlin.yaml"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	code, _, stderr = sites(hub + berlin + rome)
	require.Equal(t, cli.ExitDone, code, stderr)
	require.Equal(t, first, keys(read("berlin")))
	require.Equal(t, append(first, keys(read("rome"))...), keys(read("hq")))

	was := read("hq")
	changed := strings.Replace(read("berlin"), first[0], "other", 1)
	require.NoError(t, os.WriteFile(filepath.Join(out, "berlin.yaml"), []byte(changed), 0o600))
	code, _, stderr = sites(hub + berlin + rome)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, stderr, "different keys")
	require.Equal(t, was, read("hq"))

	require.NoError(t, os.WriteFile(filepath.Join(out, "berlin.yaml"), []byte("mine: true\n"), 0o600))
	code, _, stderr = sites(hub + berlin)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, stderr, "not been written by this command")
	require.Equal(t, "mine: true\n", read("berlin"))
}
