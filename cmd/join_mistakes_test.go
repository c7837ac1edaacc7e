package cmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	file "gotest.tools/v3/golden"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/cli"
)

// mistakes joins in every wrong way there is, and prints what subctl says to it
// into one golden file: each names the thing, the reason and the remedy.
func (w *joinWorld) mistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	whole, err := os.ReadFile(w.file)
	require.NoError(t, err)
	nowhere := w.kubeconfig(t, dir, "nowhere", func(c *rest.Config) { c.Host = "https://127.0.0.1:1" })
	nobody := w.kubeconfig(t, dir, "nobody", func(c *rest.Config) { *c = *w.member.As(w.powerless(t)) })
	later := func(g *globals) { g.Now = func() time.Time { return time.Now().Add(100 * time.Hour) } }
	member := w.member.Config().Host

	var out strings.Builder
	for _, test := range []struct {
		name   string
		args   []string // after "join", or all if the first is "-"
		change func(*globals)
		before func() (after func())
	}{
		{name: "no file", args: []string{"-", "join"}},
		{name: "file missing", args: []string{"-", "join", "no-such-file.subm", "--clusterid", "west"}},
		{name: "file empty", args: []string{"-", "join", write("empty.subm", ""), "--clusterid", "west"}},
		{
			name: "file cut off",
			args: []string{"-", "join", write("cut.subm", string(whole[:len(whole)/2])), "--clusterid", "west"},
		},
		{
			name: "file foreign",
			args: []string{"-", "join", write("foreign.subm", "apiVersion: v1"), "--clusterid", "west"},
		},
		{name: "file expired", change: later},
		{name: "no kubeconfig", args: []string{"--kubeconfig", write("empty.kubeconfig", "")}},
		{name: "unknown context", args: []string{"--context", "nirvana"}},
		{name: "API server unreachable", args: []string{"--kubeconfig", nowhere}},
		{name: "rights missing", args: []string{"--kubeconfig", nobody}},
		{
			name:   "rights exceeded",
			args:   []string{"--kubeconfig", nobody},
			before: func() func() { return w.operator(t, "get", "list", "create", "patch") },
		},
		{name: "broker unreachable", args: []string{"--broker-url", "127.0.0.1:1"}},
		{name: "broker URL is none", args: []string{"--broker-url", "http://hub"}},
		{name: "broker certificate untrusted", args: []string{"--broker-url", member}},
		{name: "broker refuses the token", args: []string{"--broker-url", member, "--check-broker-certificate=false"}},
		{name: "cluster ID no label", args: []string{"--clusterid", "Prod_1"}},
		{name: "cluster ID too long", args: []string{"--clusterid", strings.Repeat("a", 64)}},
		{name: "cluster ID taken", args: []string{"--clusterid", "taken"}},
		{name: "CIDR malformed", args: []string{"--clustercidr", "10.111.0.0"}},
		{name: "CIDR with host bits", args: []string{"--clustercidr", "10.111.0.1/16"}},
		{name: "CIDR of IPv6", args: []string{"--servicecidr", "fd00::/108"}},
		{name: "CIDR overlaps a member's", before: func() func() { return w.east(t, "10.111.0.0/16") }},
		{name: "CIDR overlaps its own", args: []string{"--clustercidr", "10.96.0.0/12"}},
		{name: "CIDR holds nodes", args: []string{"--clustercidr", "10.89.0.0/16"}},
		{name: "CIDR reserved", args: []string{"--clustercidr", "240.1.0.0/16"}},
		{name: "CIDR link-local", args: []string{"--clustercidr", "169.254.0.0/16"}},
		{name: "member's CIDR holds nodes", before: func() func() { return w.east(t, "10.89.0.0/16") }},
		{name: "no gateway", args: []string{"--label-gateway=false"}},
		{name: "gateway node unknown", args: []string{"--gateway-nodes", "n1,n9"}},
		{name: "driver unknown", args: []string{"--cable-driver", "carrier-pigeon"}},
		{
			name:   "driver cannot do NAT",
			args:   []string{"--natt"},
			before: func() func() { return w.east(t, "10.112.0.0/16") },
		},
		{name: "label reserved", args: []string{"--cluster-labels", "submariner-io/clusterID=east"}},
		{name: "time limit negative", args: []string{"--timeout", "-1s"}},
		{name: "port wrong", args: []string{"--nattport", "70000"}},
		{name: "offered driver unknown", args: []string{"--cable-drivers", "vxlan,gre"}},
		{name: "one driver combined", args: []string{"--combined-cable-drivers", "vxlan"}},
		{name: "ConfigMap of another namespace", args: []string{"--cable-driver-config", "net/cables"}},
		{name: "clusterset unknown", args: []string{"--clusterset", "nirvana"}},
		{name: "label wrong", args: []string{"--cluster-labels", "a b=c"}},
		{name: "image malformed", args: []string{"--image", "no image"}},
		{name: "image in upper case", args: []string{"--image", "registry.example/Subctl:v1"}},
		{name: "too many gateways for the cluster", args: []string{"--gateways", "9"}},
		{name: "number of gateways wrong", args: []string{"--gateways", "0", "--gateway-nodes", "n1"}},
		{name: "format without dry run", args: []string{"-o", "json"}},
		{
			name: "several mistakes on the command line",
			args: []string{
				"--clusterid", "X", "--clustercidr", "nonsense", "--cable-driver", "y", "--image", "no image",
			},
		},
		{
			name: "several mistakes in the clusters",
			args: []string{"--clusterid", "taken", "--gateway-nodes", "n9", "--clustercidr", "10.96.0.0/16"},
		},
	} {
		var after func()
		if test.before != nil {
			after = test.before()
		}
		args := append([]string{"join", w.file, "--clusterid", "west", "--wait=false"}, test.args...)
		if len(test.args) > 0 && test.args[0] == "-" {
			args = test.args[1:]
		}
		r := w.runWith(t, t.Context(), test.change, args...)
		require.Empty(t, r.stdout, test.name)
		require.NotZero(t, r.code, test.name)
		if after != nil {
			after()
		}
		stderr := strings.ReplaceAll(r.stderr, dir+"/", "")
		stderr = regexp.MustCompile(`(?m)^ • .*\n`).ReplaceAllString(stderr, "") // progress
		fmt.Fprintf(&out, "## %s (exit code %d)\n%s\n", test.name, r.code, stderr)
	}
	file.Assert(t, out.String(), "join_mistakes.txt")
}

// kubeconfig writes a kubeconfig for the member's administrator, changed.
func (w *joinWorld) kubeconfig(t *testing.T, dir, name string, change func(*rest.Config)) string {
	t.Helper()
	raw, err := clientcmd.LoadFromFile(w.member.Kubeconfig())
	require.NoError(t, err)
	cfg := w.member.Config()
	change(cfg)
	for _, c := range raw.Clusters {
		c.Server = cfg.Host
	}
	if cfg.BearerToken != "" {
		for _, u := range raw.AuthInfos {
			u.ClientCertificate = ""
			u.ClientCertificateData = nil
			u.ClientKey = ""
			u.ClientKeyData = nil
			u.Token = cfg.BearerToken
		}
	}
	path := filepath.Join(dir, name+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*raw, path))
	return path
}

// powerless returns a token of somebody who may do nothing on the member.
func (w *joinWorld) powerless(t *testing.T) string {
	t.Helper()
	request := &authv1.TokenRequest{}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	require.NoError(t, w.memberC.SubResource("token").Create(t.Context(), sa, request))
	return request.Status.Token
}

// east makes a member with the pod network cidr on the broker, for as long as it
// is not called off.
func (w *joinWorld) east(t *testing.T, cidr string) func() {
	t.Helper()
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "east",
			Namespace: submarinerv1.BrokerNamespace,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: "east"},
		},
		Spec: submarinerv1.ClusterSpec{
			ClusterID:   "east",
			ClusterCIDR: []string{cidr},
			ServiceCIDR: []string{"10.102.0.0/16"},
			GlobalCIDR:  []string{},
		},
	}
	require.NoError(t, w.hubC.Create(t.Context(), c))
	return func() { require.NoError(t, w.hubC.Delete(t.Context(), c)) }
}

// interrupted presses Ctrl-C in the middle of a join: on the broker's side, then
// on the cluster's, and once more before the end. The next join finishes it.
func (w *joinWorld) interrupted(t *testing.T) {
	for _, n := range []int{3, 12, 25} {
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		count := func() {
			if writes++; writes == n {
				cancel()
			}
		}
		r := w.runWith(t, ctx, func(g *globals) {
			dial := g.Connect
			g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
				c, err := dial(ctx, cfg)
				if err != nil {
					return nil, err
				}
				return counter{c, count}, nil
			}
		}, "join", w.file, "--clusterid", "west", "--wait=false")
		cancel()
		require.Equal(t, cli.ExitInterrupted, r.code, "after %d writes: %s", n, r.stderr)
		require.Contains(t, r.stderr, "Error: interrupted: run the same command again to finish", "after %d writes", n)
	}
}

// counter is a client that tells of every write.
type counter struct {
	client.Client
	wrote func()
}

func (c counter) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if obj.GetName() != "" { // an access review has no name
		c.wrote()
	}
	return err
}

func (c counter) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	defer c.wrote()
	return c.Client.Apply(ctx, obj, opts...)
}

func (c counter) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	defer c.wrote()
	return c.Client.Patch(ctx, obj, p, opts...)
}
