package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/ipsec"
	"subctl/cluster/networks"
)

const root = "../.."

// TestUpToDate compares the files with what would be generated now.
func TestUpToDate(t *testing.T) {
	files, err := generate(root)
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err, "run \"make generate\"")
		require.Equal(t, want, string(got), "%s is not up to date: run \"make generate\"", name)
	}
	old, err := written(root)
	require.NoError(t, err)
	for _, name := range old {
		require.Contains(t, files, name, "%s is the page of a command that no longer exists: run \"make generate\"",
			name)
	}
}

// TestEverywhereTheSame generates in another home.
func TestEverywhereTheSame(t *testing.T) {
	here, err := generate(root)
	require.NoError(t, err)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "elsewhere")
	there, err := generate(root)
	require.NoError(t, err)
	require.Equal(t, here, there)
}

// TestExample: the example on the page is valid.
func TestExample(t *testing.T) {
	_, err := cable.ParseConfig(exampleConfig, drivers.All())
	require.NoError(t, err)
}

// TestOptions: the page has one row for each option, shared by the drivers that have it.
func TestOptions(t *testing.T) {
	page := options(drivers.All())
	for _, d := range drivers.All() {
		for _, o := range d.Options() {
			require.Contains(t, page, "| `"+o.Key+"` | ", d.Name())
			require.NotEmpty(t, o.Doc, "%s of %s", o.Key, d.Name())
			require.NotEmpty(t, o.Values(), "%s of %s", o.Key, d.Name())
		}
	}
	require.Equal(t, 1, strings.Count(page, "| `mtu` | "))
	require.Contains(t, page, "a whole number from 576 to 65535 | none | each pair |")
}

func TestWriteTidiesUp(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"dataplane/numbers.go", "agent/metrics.go", "agent/dns/metrics.go", "docs/cni.md"} {
		source, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), source, 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "docs", "cli"), 0o755))
	gone := filepath.Join(dir, "docs", "cli", "subctl_frobnicate.md")
	require.NoError(t, os.WriteFile(gone, nil, 0o600))

	require.NoError(t, write(dir))
	require.NoFileExists(t, gone)
	require.FileExists(t, filepath.Join(dir, "docs", "cli", "subctl_show_connections.md"))
	numbers, err := os.ReadFile(filepath.Join(dir, "docs", "numbers.md"))
	require.NoError(t, err)
	require.Contains(t, string(numbers),
		"| `VXLANPort` | `4502` | VXLANPort is the UDP port of plain VXLAN between gateways: the next port again. |")
	require.Contains(t, string(numbers), "| `VXLANNet` | `241.0.0.0/8` | Every gateway has an address ")
	require.Equal(t, 1, strings.Count(string(numbers), "Every gateway has an address "),
		"the comment of several constants appears once")
	require.Contains(t, string(numbers), "| `WireGuardNet` | `244.0.0.0/8` | likewise |")
}

// TestProposals: the page names every accepted keyword, and its example is valid.
func TestProposals(t *testing.T) {
	page := proposals()
	for _, p := range ipsec.Parts() {
		for _, name := range p.Names {
			require.Contains(t, page, "`"+name+"`", p.Name)
		}
	}
	_, example, _ := strings.Cut(page, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	require.Contains(t, example, "espProposals")
	_, err := cable.ParseConfig(example, drivers.All())
	require.NoError(t, err)
}

// TestSignTable: each row links to a section of the page, and is marked.
func TestSignTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "cni.md"))
	require.NoError(t, err)
	heads := strings.ToLower(string(page))
	for _, s := range networks.Signs() {
		head := "\n## " + strings.ReplaceAll(s.Section, "-", " ")
		require.Contains(t, strings.ReplaceAll(strings.ReplaceAll(heads, "`", ""), "-", " "), head, s.Product)
	}
	require.Contains(t, string(page),
		"#cilium) | `networkPlugin: cilium`; `kube-proxy-replacement: true` or `strict` in ConfigMap `cilium-config`; ")
	require.Contains(t, string(page), "| works | nothing | *run* |")
}

// TestMetrics: every metric is found, with all of its labels.
func TestMetrics(t *testing.T) {
	file := filepath.Join(root, "agent", "metrics.go")
	found, err := readMetrics(file)
	require.NoError(t, err)
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, found, strings.Count(string(source), `"submariner_`))
	require.Contains(t, found, metric{
		name: "submariner_connections", kind: "gauge", help: "1 for each connection, with its status.",
		labels: []string{
			"cable_driver", "local_cluster", "local_hostname", "local_endpoint_ip",
			"remote_cluster", "remote_hostname", "remote_endpoint_ip", "status",
		},
	})
	require.Contains(t, found, metric{
		name:   "submariner_sync_errors_total",
		kind:   "counter",
		help:   "Number of times that the node did not hold the plan after a sync.",
		labels: []string{"role"},
	})
}

func TestReadMetricsRefuses(t *testing.T) {
	for name, test := range map[string]struct{ code, want string }{
		"no help": {
			`var m = p.NewCounter(p.CounterOpts{Name: "a"})`,
			`metric "a" must have a literal Name and Help`,
		},
		"options apart": {`var m = p.NewCounter(opts)`, `metric "" must have a literal Name and Help`},
		"a name to read": {
			`var m = p.NewCounter(p.CounterOpts{Name: name, Help: "b"})`,
			"*ast.Ident instead of a string literal",
		},
		"labels apart": {
			`var m = p.NewGaugeVec(p.GaugeOpts{Name: "a", Help: "b"}, labels)`,
			"instead of a list of labels",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "metrics.go")
			require.NoError(t, os.WriteFile(file, []byte("package agent\n\n"+test.code+"\n"), 0o600))
			_, err := readMetrics(file)
			require.ErrorContains(t, err, test.want)
		})
	}
}
