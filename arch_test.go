package main

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// may lists the parts of ours that each part imports, except itself. An import that is
// not listed is forbidden, and so is a part that is not listed. A folder that is not listed
// belongs to the part above it: the groups and versions to "api".
// TestArchitecture fails for an edge that no source needs.
var may = map[string]string{
	".": "cmd",
	"cmd": "agent agent/discovery agent/dns agent/mesh agent/mesh/report agent/parts agent/probe agent/role " +
		"agent/roles api broker broker/exchange broker/trust cable cable/drivers cluster cluster/join " +
		"cluster/networks cluster/rotate cluster/uninstall dataplane dataplane/kernel dataplane/kernel/conntrack " +
		"dataplane/kernel/probe globalnet globalnet/allocator " +
		"internal/cli internal/connect internal/drain internal/guard internal/kube internal/look internal/prefix " +
		"internal/printer internal/progress internal/proxy internal/version internal/wake internal/words policy " +
		"policy/catalog policy/impact sdewan sdewan/cnf/agent sdewan/cnf/server sdewan/install sdewan/manager " +
		"sdewan/sites sdewan/view sdewan/webhook services",
	"agent": "agent/discovery agent/mesh agent/mesh/members agent/parts agent/probe agent/role api broker/exchange " +
		"dataplane globalnet globalnet/allocator internal/alarm internal/kube internal/proxy internal/serving " +
		"internal/wake internal/words policy",
	"agent/dns": "api internal/kube internal/serving services services/dns",
	"agent/parts": "agent/discovery agent/mesh agent/mesh/members agent/probe agent/role api broker broker/exchange " +
		"cable cable/keys cable/natdiscovery cluster cluster/clusterdns cluster/networks dataplane globalnet " +
		"globalnet/allocator internal/alarm internal/kube internal/prefix internal/proxy internal/wake " +
		"services/discoverer",
	"agent/mesh": "agent/mesh/members agent/role api cable cable/drivers cable/keys cable/natdiscovery dataplane " +
		"globalnet internal/prefix policy",
	"agent/mesh/report": "agent/mesh agent/mesh/members agent/role api cable cable/keys dataplane internal/prefix " +
		"internal/version internal/words policy",
	"agent/role":  "api cable cable/keys cable/natdiscovery dataplane globalnet internal/words policy",
	"agent/probe": "agent/role api internal/wake",
	"agent/roles": "agent/mesh agent/mesh/report agent/role api cluster/gatewaynodes dataplane globalnet/allocator " +
		"services/discoverer",
	"agent/mesh/members":  "agent/role api cable dataplane internal/prefix",
	"globalnet/allocator": "agent/role api dataplane globalnet",
	"services/discoverer": "agent/role api broker/trust dataplane internal/prefix services",
	"agent/discovery":     "api cable cable/natdiscovery dataplane internal/alarm internal/wake",
	"cluster": "api api/crds broker broker/exchange broker/trust cable/keys cluster/gatewaynodes " +
		"dataplane internal/kube internal/version services",
	"cluster/clustertest": "api cluster internal/kube",
	"cluster/workload":    "cluster internal/kube",
	"cluster/join": "api broker broker/exchange broker/trust cable cable/drivers cable/keys cluster " +
		"cluster/clusterdns cluster/gatewaynodes cluster/networks cluster/workload dataplane globalnet internal/kube " +
		"internal/look internal/prefix internal/progress internal/proxy internal/version internal/wake " +
		"internal/words policy policy/catalog policy/impact services",
	"cluster/gatewaynodes": "api broker/trust internal/words",
	"cluster/clusterdns":   "api internal/kube services",
	"cluster/networks":     "api internal/kube internal/prefix internal/words",
	"cluster/rotate":       "api cable/keys cluster internal/kube internal/progress internal/wake",
	"cluster/uninstall": "api api/crds broker broker/exchange cluster cluster/clusterdns cluster/workload " +
		"internal/kube internal/progress internal/proxy internal/wake internal/words services",
	"broker": "api api/crds broker/exchange broker/trust globalnet internal/kube internal/proxy " +
		"internal/secret internal/wake internal/words",
	"policy":                  "api cable cable/drivers internal/words",
	"policy/catalog":          "api cable cable/drivers cable/keys cable/natdiscovery internal/prefix internal/words policy",
	"policy/catalogtest":      "api policy policy/catalog",
	"policy/impact":           "api internal/printer internal/words policy policy/catalog",
	"globalnet":               "api dataplane internal/prefix",
	"services":                "api internal/prefix internal/words",
	"broker/trust":            "internal/prefix",
	"broker/exchange":         "api broker/trust cable internal/kube internal/prefix internal/wake internal/words policy",
	"broker/brokertest":       "api broker broker/exchange broker/trust internal/kubetest",
	"cable":                   "api cable/keys dataplane globalnet internal/prefix internal/words",
	"cable/drivers":           "api cable cable/ipsec cable/vxlan cable/wireguard",
	"cable/vxlan":             "cable dataplane internal/prefix",
	"cable/wireguard":         "cable cable/keys cable/vxlan dataplane internal/prefix",
	"cable/ipsec":             "api cable cable/keys cable/vxlan dataplane internal/prefix",
	"cable/keys":              "dataplane",
	"cable/natdiscovery":      "cable dataplane",
	"dataplane":               "internal/prefix internal/secret",
	"dataplane/dataplanetest": "dataplane",
	"dataplane/kernel": "dataplane dataplane/kernel/conntrack dataplane/kernel/ike dataplane/kernel/iptables " +
		"dataplane/kernel/link dataplane/kernel/netlink dataplane/kernel/nft dataplane/kernel/route " +
		"dataplane/kernel/store dataplane/kernel/strongswan",
	"api":          "",
	"api/crds":     "",
	"sdewan":       "api internal/prefix sdewan/rest",
	"sdewan/sites": "api internal/prefix sdewan",
	"sdewan/install": "api api/crds cluster cluster/workload dataplane internal/kube internal/progress " +
		"internal/version internal/wake internal/words sdewan sdewan/controller sdewan/view sdewan/webhook",
	"sdewan/manager": "internal/kube sdewan sdewan/controller sdewan/install sdewan/webhook",
	"sdewan/view":    "api dataplane internal/kube sdewan sdewan/cnf sdewan/rest",
	"sdewan/rest":    "internal/prefix",
	"sdewan/controller": "api dataplane internal/kube internal/secret sdewan sdewan/controller/expose " +
		"sdewan/controller/fair sdewan/rest sdewan/rest/client",
	"sdewan/controller/expose": "api sdewan",
	"sdewan/controller/fair":   "",
	"sdewan/webhook":           "internal/kube internal/wake sdewan",
	"sdewan/rest/client":       "internal/secret sdewan/rest",
	"sdewan/rest/openwrttest":  "sdewan/rest",
	"sdewan/cnf/server":        "sdewan/rest",
	"sdewan/cnf":               "dataplane internal/prefix internal/secret sdewan/rest",
	"sdewan/cnf/agent":         "dataplane internal/wake sdewan sdewan/cnf sdewan/rest",
	"services/dns":             "api services",
	"internal/alarm":           "",
	"internal/cli":             "internal/kube internal/printer internal/progress internal/words",
	"internal/connect": "broker cluster internal/cli internal/kube internal/look internal/progress " +
		"internal/proxy",
	"internal/guard": "cluster internal/cli internal/look internal/progress internal/wake internal/words " +
		"policy/catalog policy/impact",
	"internal/drain": "api broker/trust cluster cluster/gatewaynodes dataplane internal/cli internal/kube " +
		"internal/look internal/printer internal/progress internal/wake internal/words",
	"internal/kube": "api internal/wake",
	"internal/look": "agent/role api broker broker/exchange cable cluster/networks cluster/workload dataplane " +
		"internal/kube internal/printer internal/progress internal/words policy policy/catalog " +
		"policy/impact services services/discoverer",
	"internal/prefix":   "",
	"internal/printer":  "",
	"internal/proxy":    "",
	"internal/progress": "internal/printer",
	"internal/words":    "",
	"internal/secret":   "",
	"internal/serving":  "internal/alarm",
	"internal/version":  "",
	"internal/wake":     "",
	"internal/measure":  "internal/nstest",
	"internal/nstest":   "",
	"internal/kubetest": "internal/kube api/crds",

	// The parts of dataplane/kernel, which only cmd may import beside it: see guarded.
	"dataplane/kernel/conntrack": "dataplane dataplane/kernel/netlink internal/prefix",
	"dataplane/kernel/ike": "dataplane dataplane/kernel/link dataplane/kernel/netlink dataplane/kernel/store " +
		"dataplane/kernel/strongswan",
	"dataplane/kernel/iptables":   "dataplane dataplane/kernel/netlink dataplane/kernel/store",
	"dataplane/kernel/link":       "dataplane dataplane/kernel/netlink dataplane/kernel/store dataplane/kernel/strongswan",
	"dataplane/kernel/netlink":    "",
	"dataplane/kernel/nft":        "dataplane dataplane/kernel/conntrack dataplane/kernel/netlink dataplane/kernel/store",
	"dataplane/kernel/probe":      "dataplane dataplane/kernel/netlink",
	"dataplane/kernel/route":      "dataplane dataplane/kernel/link dataplane/kernel/netlink dataplane/kernel/store",
	"dataplane/kernel/store":      "dataplane",
	"dataplane/kernel/strongswan": "dataplane",
}

// guarded lists the only places where something may be imported or called: folders and
// files. Keys are import paths, with everything under them, and functions.
var guarded = map[string][]string{
	"github.com/vishvananda/":        {"dataplane/kernel/"},
	"github.com/coreos/go-iptables/": {"dataplane/kernel/"},
	"github.com/strongswan/":         {"dataplane/kernel/"},
	"github.com/google/nftables":     {"dataplane/kernel/"},
	"golang.zx2c4.com/wireguard/":    {"dataplane/kernel/"},
	"os/exec":                        {"dataplane/kernel/"},
	"subctl/dataplane/kernel":        {"cmd/agent_linux.go"},
	"subctl/dataplane/kernel/":       {"dataplane/kernel/", "cmd/agent_linux.go"},
	"github.com/spf13/viper":         {"internal/cli/config.go"},
	"github.com/spf13/cobra":         {"cmd/", "internal/cli/", "internal/guard/"},
	"github.com/miekg/dns":           {"agent/dns/", "services/dns/"},
	"github.com/coredns/":            {"cluster/clusterdns/"},
	"github.com/distribution/":       {"cluster/join/", "sdewan/install/"},
	"k8s.io/cli-runtime/":            {"cmd/", "internal/cli/", "internal/connect/"},
	"github.com/olekukonko/":         {"internal/printer/"},
	"sigs.k8s.io/controller-runtime/": {
		"agent/",
		"broker/",
		"cluster/",
		"cmd/",
		"internal/cli/",
		"internal/connect/",
		"internal/drain/",
		"internal/kube/",
		"internal/look/",
		"api/",
		"sdewan/controller/",
		"sdewan/install/",
		"sdewan/manager/",
		"sdewan/view/",
		"sdewan/webhook/",
	},
	"k8s.io/client-go/": {
		"agent/",
		"broker/",
		"cluster/",
		"cmd/",
		"internal/connect/",
		"internal/kube/",
		"sdewan/controller/",
		"sdewan/manager/",
		"sdewan/webhook/",
	},
	"os.Getenv":                      {"internal/cli/config.go"},
	"os.LookupEnv":                   {"internal/cli/config.go"},
	"os.Exit":                        {"main.go"},
	"context.TODO":                   {},
	"context.Background":             {"cmd/root.go"},
	"sigs.k8s.io/controller-runtime": {"agent/", "cmd/", "sdewan/controller/", "sdewan/manager/"},
	"golang.org/x/sys/":              {"dataplane/kernel/"},
}

// helpers are folders that are not part of the program: no part of the program may import
// them, and they may use everything.
var helpers = []string{
	"broker/brokertest/", "cluster/clustertest/", "dataplane/dataplanetest/", "internal/kubetest/", "internal/measure/",
	"internal/nstest/", "scripts/", "sdewan/rest/openwrttest/",
}

// pure are the parts whose functions depend on their arguments alone, and impure is what
// they may not use.
var (
	pure = []string{
		"agent/mesh", "agent/mesh/members", "agent/mesh/report", "agent/role", "agent/roles", "broker/trust", "cable",
		"cable/drivers",
		"cable/ipsec", "cable/keys", "cable/natdiscovery", "cable/vxlan", "cable/wireguard", "cluster/gatewaynodes",
		"dataplane", "globalnet", "globalnet/allocator", "internal/prefix", "policy", "policy/catalog", "sdewan", "sdewan/rest",
		"sdewan/cnf", "sdewan/sites", "services", "services/discoverer",
	}
	impure = []string{
		"crypto/rand", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net/http", "os", "sync",
		"net.Dial", "net.Listen", "time.After", "time.NewTicker", "time.NewTimer", "time.Now", "time.Since",
		"time.Sleep", "time.Tick", "k8s.io/client-go/",
	}
)

// random lists the sources in pure parts that may use random numbers: they make keys.
var random = []string{"broker/trust/key.go", "cable/keys/keys.go"}

// vague lists names of packages that do not describe the content, and so attract everything.
var vague = []string{"common", "helpers", "misc", "pkg", "shared", "types", "util", "utils"}

func TestArchitecture(t *testing.T) {
	needed := map[string]bool{}
	for _, s := range sources(t) {
		for _, v := range s.violations() {
			t.Error(v)
		}
		for _, imported := range s.ours() {
			needed[part(path.Dir(s.path))+" "+part(imported)] = true
		}
	}
	for from, edges := range may {
		for _, to := range strings.Fields(edges) {
			if !needed[from+" "+to] {
				t.Errorf("%s does not import %s: remove the edge", from, to)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the imports to docs/architecture.md")

// docs/architecture.md shows the same tree: who imports whom, and what each folder is.
func TestArchitectureIsDocumented(t *testing.T) {
	const file, begin, end = "docs/architecture.md", "<!-- imports: go test . -update -->\n", "<!-- end of imports -->\n"
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(b), begin)
	require.True(t, found, "%s has no line %s", file, begin)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no line %s", file, end)
	if *update {
		table = importTable()
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table+end+after), 0o600))
	}
	require.Equal(t, importTable(), table, "%s: run go test . -update", file)
	for p := range may {
		if folder, _, _ := strings.Cut(p, "/"); p != "." {
			require.Regexp(t, "(?m)^\\|.*`"+folder+"/", before, "%s does not explain the folder", file)
		}
	}
}

// importTable returns may as a table in Markdown.
func importTable() string {
	out := "| part | imports |\n| --- | --- |\n"
	for _, from := range slices.Sorted(maps.Keys(may)) {
		to := "nothing of ours"
		if may[from] != "" {
			to = "`" + strings.Join(strings.Fields(may[from]), "`, `") + "`"
		}
		out += "| `" + strings.Replace(from, ".", "main.go", 1) + "` | " + to + " |\n"
	}
	return out
}

// Whatever the pure parts import, they bring no client of an API server with them, and no access to
// a kernel.
func TestPureParts(t *testing.T) {
	args := []string{"list", "-deps", "./cable/..."} // every driver, too
	for _, p := range pure {
		args = append(args, "./"+p)
	}
	out, err := exec.Command("go", args...).Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "subctl/agent/mesh")
	for _, p := range packages {
		for _, client := range []string{
			"sigs.k8s.io/controller-runtime/", "k8s.io/client-go/", "github.com/vishvananda/",
		} {
			require.False(t, strings.HasPrefix(p, client), "go list -deps of the pure parts has %s", p)
		}
	}
}

// TestArchitectureBites checks a few sources that break the rules.
func TestArchitectureBites(t *testing.T) {
	for _, test := range []struct{ path, code, want string }{
		{"cable/vxlan/vxlan.go", `import "subctl/agent"`, "cable/vxlan/vxlan.go: cable/vxlan may not import agent"},
		{
			"cable/vxlan/vxlan.go",
			`import "github.com/vishvananda/netlink"`,
			"cable/vxlan/vxlan.go: github.com/vishvananda/netlink belongs in dataplane/kernel/",
		},
		{
			"dataplane/link.go",
			`import "sigs.k8s.io/yaml"`,
			"dataplane/link.go: dataplane uses the standard library alone, not sigs.k8s.io/yaml",
		},
		{
			"cmd/join.go",
			`import "github.com/spf13/viper"`,
			"cmd/join.go: github.com/spf13/viper belongs in internal/cli/config.go",
		},
		{"cmd/join.go", `import "subctl/internal/nstest"`, "cmd/join.go: cmd may not import internal/nstest"},
		{
			"agent/run.go",
			`import "context"; func Run() { f(context.Background()) }`,
			"agent/run.go: context.Background belongs in cmd/root.go",
		},
		{
			"cmd/root.go",
			`import "context"; func Run() { f(context.Background()) }`,
			"cmd/root.go: context.Background belongs in Main",
		},
		{"cmd/root.go", `import "context"; func Main() { f(context.Background()) }`, ""},
		{
			"agent/run.go",
			`import "context"; func Run() { f(context.TODO()) }`,
			"agent/run.go: context.TODO belongs nowhere",
		},
		{"internal/utils/x.go", ``, "internal/utils/x.go: a package named utils says nothing"},
		{"wires/x.go", ``, "wires/x.go: wires is not in the list of parts"},
		{"internal/nstest/x.go", `import "os/exec"`, ""},
		{
			"agent/mesh/x.go",
			`import "time"; func f() { g(time.Now()) }`,
			"agent/mesh/x.go: agent/mesh is pure: it may not use time.Now",
		},
		{"agent/mesh/x.go", `import "net"; func f() { net.SplitHostPort("x") }`, ""},
		{
			"cable/x.go",
			`import "net"; func f() { net.Dial("tcp", "x") }`,
			"cable/x.go: cable is pure: it may not use net.Dial",
		},
		{
			"cable/drivers/x.go",
			`import "subctl/policy/catalog"`,
			"cable/drivers/x.go: cable/drivers may not import policy/catalog",
		},
		{
			"broker/exchange/x.go",
			`import "subctl/policy/catalog"`,
			"broker/exchange/x.go: broker/exchange may not import policy/catalog",
		},
		{"policy/catalog/x.go", `import "os"`, "policy/catalog/x.go: policy/catalog is pure: it may not use os"},
		{"policy/x.go", `import "log/slog"`, "policy/x.go: policy is pure: it may not use log/slog"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), test.path, "package x\n"+test.code, parser.ParseComments)
		require.NoError(t, err)
		require.Equal(t, test.want, strings.Join(source{test.path, file}.violations(), "\n"))
	}
}

// source is a Go file of this module, except tests, with its path in the module.
type source struct {
	path string
	file *ast.File
}

// sources parses all sources, for every operating system.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(p, "go.mod")); p != "." &&
				(err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir // another module, or no code of ours
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{filepath.ToSlash(p), file})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// violations returns a message for each rule that the source breaks.
func (s source) violations() []string {
	var out []string
	say := func(text string) { out = append(out, s.path+": "+text) }
	for _, name := range strings.Split(path.Dir(s.path), "/") {
		if slices.Contains(vague, name) {
			return append(out, s.path+": a package named "+name+" says nothing")
		}
	}
	if strings.HasPrefix(s.path, "scripts/") {
		return nil
	}
	from := part(path.Dir(s.path))
	if from == "" {
		say(path.Dir(s.path) + " is not in the list of parts")
	}
	for _, spec := range s.file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		if ours, ok := strings.CutPrefix(imported, "subctl/"); ok {
			if to := part(ours); to != from && !slices.Contains(strings.Fields(may[from]), to) {
				say(from + " may not import " + ours)
			}
		} else if from == "dataplane" && strings.Contains(imported, ".") {
			say("dataplane uses the standard library alone, not " + imported)
		}
		if where, ok := s.guard(imported); !ok {
			say(imported + " belongs " + where)
		}
		if s.impure(from, imported) {
			say(from + " is pure: it may not use " + imported)
		}
	}
	for _, declaration := range s.file.Decls {
		ast.Inspect(declaration, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok {
				name := pkg.Name + "." + call.Sel.Name
				where, ok := s.guard(name)
				if f, isFunc := declaration.(*ast.FuncDecl); ok && name == "context.Background" &&
					(!isFunc || f.Name.Name != "Main") &&
					!s.helps() {
					where = "in Main"
					ok = false
				}
				if !ok {
					say(name + " belongs " + where)
				}
				if s.impure(from, name) {
					say(from + " is pure: it may not use " + name)
				}
			}
			return true
		})
	}
	return out
}

// ours returns the packages of this module that the source imports.
func (s source) ours() (out []string) {
	for _, spec := range s.file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		if ours, ok := strings.CutPrefix(imported, "subctl/"); ok {
			out = append(out, ours)
		}
	}
	return out
}

// impure reports whether a part is pure and may not use something.
func (s source) impure(part, thing string) bool {
	return slices.Contains(pure, part) && !slices.Contains(random, s.path) &&
		slices.ContainsFunc(impure, func(i string) bool {
			return thing == i || strings.HasSuffix(i, "/") && strings.HasPrefix(thing, i)
		})
}

// helps reports whether the source belongs to a helper.
func (s source) helps() bool {
	return slices.ContainsFunc(helpers, func(h string) bool { return strings.HasPrefix(s.path, h) })
}

// guard reports whether the source may use something, and if not, who may.
func (s source) guard(thing string) (where string, ok bool) {
	if s.helps() {
		return "", true
	}
	for guard, places := range guarded {
		if thing != guard && (!strings.HasSuffix(guard, "/") || !strings.HasPrefix(thing, guard)) {
			continue
		}
		if !slices.ContainsFunc(places,
			func(p string) bool { return s.path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(s.path, p) }) {
			if len(places) == 0 {
				return "nowhere", false
			}
			return "in " + strings.Join(places, ", "), false
		}
	}
	return "", true
}

// part returns the listed part that a folder belongs to.
func part(dir string) string {
	best := ""
	for p := range may {
		if (dir == p || strings.HasPrefix(dir, p+"/")) && len(p) > len(best) {
			best = p
		}
	}
	return best
}
