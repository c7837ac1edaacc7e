package connect

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// kubeconfigFile writes a kubeconfig with one context, which is the current one.
func kubeconfigFile(t *testing.T, dir, context string) string {
	t.Helper()
	file := filepath.Join(dir, context+".yaml")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + context + "\ncontexts: [{name: " + context +
		", context: {cluster: c-" + context + ", user: u-" + context + "}}]\n" +
		"clusters: [{name: c-" + context + ", cluster: {server: 'https://" + context + ".test'}}]\nusers: [{name: u-" +
		context + ", user: {}}]\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestKubeconfigList(t *testing.T) {
	dir := t.TempDir()
	west := kubeconfigFile(t, dir, "west")
	east := kubeconfigFile(t, dir, "east")
	list := func(files ...string) string {
		text := ""
		for _, f := range files {
			text += f + string(os.PathListSeparator)
		}
		return text
	}
	k := New(io.Discard)
	*k.Flags.KubeConfig = list(west, east)
	names, err := k.Contexts()
	require.NoError(t, err)
	require.Equal(t, []string{"east", "west"}, names)
	for context, host := range map[string]string{"": "https://west.test", "east": "https://east.test"} {
		cfg, err := k.RestConfigFor(context)
		require.NoError(t, err)
		require.Equal(t, host, cfg.Host)
	}
	*k.Flags.KubeConfig = list(west, filepath.Join(dir, "north.yaml"))
	_, err = k.RestConfig()
	require.ErrorContains(t, err, "reading the kubeconfig: stat "+filepath.Join(dir, "north.yaml")+": no such file")
}

// A file of $KUBECONFIG that does not exist is named: clientcmd skips it.
func TestKubeconfigOfEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBECONFIG", file)
	_, err := New(io.Discard).RestConfig()
	require.EqualError(t, err,
		"no kubeconfig found in "+file+": specify one with --kubeconfig FILE or $KUBECONFIG, or create ~/.kube/config")
}

// A file that is not a kubeconfig is reported without the types of Go.
func TestNoKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(file, []byte("root:x:0:0:root:/root:/bin/bash\n"), 0o600))
	k := New(io.Discard)
	*k.Flags.KubeConfig = file
	_, err := k.RestConfig()
	require.EqualError(
		t,
		err,
		`reading the kubeconfig: error loading config file "`+file+
			`": the file is not a kubeconfig: specify another file with --kubeconfig FILE or $KUBECONFIG`,
	)
}

// The namespace comes from the context, which must exist. With --server, no kubeconfig is needed.
func TestNamespace(t *testing.T) {
	dir := t.TempDir()
	k := New(io.Discard)
	*k.Flags.KubeConfig = kubeconfigFile(t, dir, "west")
	namespace, err := k.Namespace()
	require.NoError(t, err)
	require.Equal(t, "default", namespace)
	*k.Flags.Context = "nope"
	_, err = k.Namespace()
	require.EqualError(t, err, `there is no context "nope" in the kubeconfig: it has west`)
	require.Equal(t, cli.ExitUsage, cli.ExitCode(err))

	t.Setenv("KUBECONFIG", filepath.Join(dir, "missing"))
	k = New(io.Discard)
	_, err = k.Namespace()
	require.ErrorContains(t, err, "no kubeconfig found")
	*k.Flags.APIServer = "https://west.test"
	namespace, err = k.Namespace()
	require.NoError(t, err)
	require.Equal(t, "default", namespace)
}

// Whatever kubectl's other flags say, a list means what one file does.
func TestKubeconfigListFlags(t *testing.T) {
	west := kubeconfigFile(t, t.TempDir(), "west")
	k := New(io.Discard)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	k.Flags.AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		values := map[string]string{
			"string":                   "x",
			"stringArray":              "a=b",
			"bool":                     "true",
			"kubeconfig":               west,
			"context":                  "west",
			"cluster":                  "c-west",
			"user":                     "u-west",
			"request-timeout":          "7s",
			"certificate-authority":    west,
			"client-certificate":       west,
			"client-key":               west,
			"server":                   "https://other.test",
			"proxy-url":                "http://proxy.test",
			"insecure-skip-tls-verify": "false",
		}
		value, ok := values[f.Name]
		if !ok {
			value = values[f.Value.Type()]
		}
		require.NoError(t, f.Value.Set(value), f.Name)
	})
	one, err := k.RestConfig()
	require.NoError(t, err)
	*k.Flags.KubeConfig += string(os.PathListSeparator) + west
	several, err := k.RestConfig()
	require.NoError(t, err)
	require.NotNil(t, one.Proxy)
	require.NotNil(t, several.Proxy)
	one.Proxy = nil
	several.Proxy = nil // functions cannot be compared
	require.Equal(t, one, several)
	require.Equal(t, "x", several.Impersonate.UserName)
}
