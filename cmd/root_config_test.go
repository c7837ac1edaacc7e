package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// TestConfig sees which cluster "show connections" tries to reach.
func TestConfig(t *testing.T) {
	reached := func(context string) string {
		return "Error: reaching the API server at https://" + context + ".test:6443 (context \"" + context +
			"\"): connection refused: is the cluster up, and the context right?\n"
	}
	for name, test := range map[string]struct {
		file   string
		env    map[string]string
		args   []string
		code   int
		stderr string // with FILE for the configuration file
	}{
		"file": {file: "context: east", code: 1, stderr: reached("east")},
		"environment wins": {
			file:   "context: east",
			env:    map[string]string{"SUBCTL_CONTEXT": "south"},
			code:   1,
			stderr: reached("south"),
		},
		"flag wins": {
			file:   "context: east",
			env:    map[string]string{"SUBCTL_CONTEXT": "south"},
			args:   []string{"--context", "west"},
			code:   1,
			stderr: reached("west"),
		},
		"list":               {file: "contexts: [south]", code: 1, stderr: reached("south")},
		"other commands too": {file: "context: east\nnode: gw-1", code: 1, stderr: reached("east")},
		"not both": {
			file:   "context: east",
			args:   []string{"--contexts", "south"},
			code:   1,
			stderr: reached("south"),
		},
		"nor the other": {
			file:   "contexts: [east, south]",
			args:   []string{"--kubecontext", "west"},
			code:   1,
			stderr: reached("west"),
		},
		"misspelt": {
			file:   "contxt: east\nfrobnicate: 1",
			code:   2,
			stderr: "Error: FILE: unknown setting \"contxt\": did you mean \"context\"?\nFILE: unknown setting \"frobnicate\"\n",
		},
		"no format": {file: "output: json", code: 2, stderr: "Error: FILE: unknown setting \"output\"\n"},
		"format stays": {
			env:    map[string]string{"SUBCTL_OUTPUT": "xml"},
			code:   1,
			stderr: reached("west"),
			args:   []string{"--context", "west"},
		},
		"no secrets": {
			file:   "password: sesame",
			code:   2,
			stderr: "Error: FILE: unknown setting \"password\": did you mean \"password-file\"?\n",
		},
		"wrong value": {
			file:   "watch: perhaps",
			code:   2,
			stderr: "Error: FILE: watch: invalid argument \"perhaps\" for \"-w, --watch\" flag: use true or false\n",
		},
		"wrong variable": {
			env:    map[string]string{"SUBCTL_WATCH": "perhaps"},
			code:   2,
			stderr: "Error: SUBCTL_WATCH: invalid argument \"perhaps\" for \"-w, --watch\" flag: use true or false\n",
		},
		"wrong timeout": {
			env:    map[string]string{"SUBCTL_REQUEST_TIMEOUT": "soon"},
			code:   2,
			stderr: "Error: SUBCTL_REQUEST_TIMEOUT: invalid argument \"soon\" for \"--request-timeout\" flag: use seconds, or a number with a unit, such as 30s or 2m\n",
		},
		"no YAML": {
			file:   "context: [east",
			code:   2,
			stderr: "Error: reading the configuration file: FILE: yaml: line 1: did not find expected ',' or ']'\n",
		},
		"empty variable": {
			env: map[string]string{"SUBCTL_CONTEXT": ""}, file: "context: east", code: 2,
			stderr: "Error: SUBCTL_CONTEXT is empty: specify a value (is a variable not set?)\n",
		},
		"not used": {
			env: map[string]string{"SUBCTL_CONTEXT": ""}, args: []string{"--contexts", "west"}, code: 1,
			stderr: reached("west"),
		},
		"empty in file": {
			file: "context:", code: 2,
			stderr: "Error: FILE: context is empty: specify a value (is a variable not set?)\n",
		},
		"empty text": {
			file: "context: \"\"", code: 2,
			stderr: "Error: FILE: context is empty: specify a value (is a variable not set?)\n",
		},
		"empty list": {
			file: "contexts: []", code: 2,
			stderr: "Error: FILE: contexts is empty: specify a value (is a variable not set?)\n",
		},
		"no name": {
			env: map[string]string{"SUBCTL_CONFIG": ""}, code: 2,
			stderr: "Error: SUBCTL_CONFIG is empty: specify a value (is a variable not set?)\n",
		},
		"file not there": {
			env: map[string]string{"SUBCTL_CONFIG": "not-there"}, code: 2,
			stderr: "Error: reading the configuration file: open not-there: no such file or directory\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, stdout, stderr := testGlobals(t, nil, "west", "east", "south")
			file := filepath.Join(t.TempDir(), "config.yaml")
			if test.file != "" {
				require.NoError(t, os.WriteFile(file, []byte(test.file), 0o600))
				t.Setenv("SUBCTL_CONFIG", file)
			}
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			code := run(t.Context(), g, append([]string{"show", "connections"}, test.args...))
			require.Equal(t, test.stderr, strings.ReplaceAll(stderr.String(), file, "FILE"))
			require.Equal(t, test.code, code)
			if test.code == cli.ExitUsage {
				require.Empty(t, stdout.String())
			}
		})
	}
}

func TestConfigInHome(t *testing.T) {
	g, _, stderr := testGlobals(t, nil, "west", "east")
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	dir := filepath.Join(home, ".config", "subctl")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("context: east"), 0o600))
	require.Equal(t, cli.ExitFailed, run(t.Context(), g, []string{"show", "connections"}))
	require.Contains(t, stderr.String(), "https://east.test:6443")
}

// TestBadConfig names a configuration file that cannot be used, and stops only what needs it.
func TestBadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv("SUBCTL_CONFIG", file)
	for text, mistake := range map[string]string{
		"contxt: east":          "unknown setting \"contxt\": did you mean \"context\"?\n",
		"request-timeout: soon": "request-timeout: invalid argument \"soon\" for \"--request-timeout\" flag: use seconds, or a number with a unit, such as 30s or 2m\n",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, args := range []string{"version", "options", "help show", "completion bash", "show", ""} {
			got := runIn(t, nil, nil, strings.Fields(args)...)
			require.Equal(t, cli.ExitDone, got.code, args)
			require.NotEmpty(t, got.stdout, args)
			require.Equal(t, " ⚠ "+file+": "+mistake, got.stderr, args)
		}
		got := runIn(t, worlds()["well"], []string{"west"}, "show", "connections")
		require.Equal(t, result{code: cli.ExitUsage, stderr: "Error: " + file + ": " + mistake}, got)
	}
}
