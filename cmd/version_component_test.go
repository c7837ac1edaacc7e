package cmd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/internal/cli"
	"subctl/internal/kubetest"
	"subctl/internal/version"
)

func TestComponentVersions(t *testing.T) {
	for _, test := range []struct {
		program string
		args    []string
		ok      bool
		code    int
		stderr  string
	}{
		{
			"/usr/local/bin/submariner-gateway",
			[]string{"--version"},
			true,
			cli.ExitDone,
			"submariner-gateway version: " + version.Version + "\n",
		},
		{
			"submariner-route-agent",
			[]string{"--version"},
			true,
			cli.ExitDone,
			"submariner-routeagent version: " + version.Version + "\n",
		},
		{
			"submariner-gateway",
			nil,
			true,
			cli.ExitUsage,
			"Error: submariner-gateway takes only --version: the agents are started by \"subctl agent\"\n",
		},
		{"/usr/local/bin/subctl", []string{"--version"}, false, cli.ExitDone, ""},
	} {
		var stdout, stderr bytes.Buffer
		code, ok := runComponent(genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, test.program, test.args)
		require.Equal(t, test.ok, ok, test.program)
		require.Equal(t, test.code, code, test.program)
		require.Equal(t, test.stderr, stderr.String(), test.program)
		require.Empty(t, stdout.String())
	}
}

// The image has a link for each name.
func TestComponentsAreInTheImage(t *testing.T) {
	script, err := os.ReadFile("../scripts/image/rootfs.sh")
	require.NoError(t, err)
	for name := range components {
		require.Regexp(
			t,
			regexp.MustCompile(
				`for component in .*\b`+name+`\b.*; do ln -s subctl "\$out/usr/local/bin/\$component"; done`),
			string(script),
		)
	}
}

// A link runs as the program of its name: what main calls looks at how it was started.
func TestComponentByLink(t *testing.T) {
	subctl, err := filepath.Abs("../bin/subctl")
	require.NoError(t, err)
	if _, err := os.Stat(subctl); err != nil {
		require.Empty(t, os.Getenv(kubetest.Require), "%v", err)
		t.Skip("bin/subctl is missing: run make build")
	}
	link := filepath.Join(t.TempDir(), "submariner-route-agent")
	require.NoError(t, os.Symlink(subctl, link))
	var stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), link, "--version")
	c.Stderr = &stderr
	require.NoError(t, c.Run())
	require.Regexp(t, `^submariner-routeagent version: \S+\n$`, stderr.String())
}
