package cmd

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/cable/drivers"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// What is wrong with the command line is said at once, all of it, before any
// cluster is asked: the world of this test has none.
func TestDeployBrokerRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("foreign", []byte("hello"), 0o600))
	for name, tc := range map[string]struct{ args, want string }{
		"namespace": {
			"-n Bad_",
			`--namespace "Bad_" is not a valid namespace: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		"URL": {
			"--broker-url http://hub:6443",
			`--broker-url "http://hub:6443" is not https://host:port`,
		},
		"URL without host": {"--broker-url https://:6443", `--broker-url "https://:6443" is not https://host:port`},
		"URL with password": {
			"--broker-url https://a:b@hub",
			`--broker-url "https://a:b@hub" is not https://host:port`,
		},
		"token, short": {"--token-ttl 1s", "--token-ttl 1s is out of range: use 10m0s to 8760h0m0s"},
		"token, long":  {"--token-ttl 10000h", "--token-ttl 10000h0m0s is out of range: use 10m0s to 8760h0m0s"},
		"no directory": {
			"--broker-info none/f",
			`--broker-info "none/f" is in a directory that does not exist: create it first`,
		},
		"no file": {"--broker-info=", "--broker-info is empty: specify a value (is a variable not set?)"},
		"a device": {
			"--broker-info /dev/full",
			`--broker-info "/dev/full" is not a regular file: specify a file, or - for stdout`,
		},
		"a directory": {
			"--broker-info .",
			`--broker-info "." is a directory: specify a file in it, such as broker-info.subm`,
		},
		"component": {
			"--components connectivity,foo",
			`unknown component "foo": use connectivity, service-discovery`,
		},
		"connectivity": {
			"--components service-discovery",
			"--components lacks connectivity, which all clusters install: add it",
		},
		"contradiction": {
			"--components service-discovery,connectivity --service-discovery=false",
			"--components service-discovery,connectivity contradicts --service-discovery=false: omit one of them",
		},
		"no component": {"--components=", "--components is empty: specify a value (is a variable not set?)"},
		"range": {
			"--globalnet --globalnet-cidr-range 127.0.0.0/8",
			"globalnet range 127.0.0.0/8 overlaps the loopback addresses 127.0.0.0/8: use another range, such as 242.0.0.0/8",
		},
		"size": {
			"--globalnet --globalnet-cidr-range 10.0.0.0/24 --globalnet-cluster-size 200",
			"globalnet cluster size 200 (rounded up to 256) is more than half of 10.0.0.0/24 (256 addresses): use at most 128, or a larger range",
		},
		"range without": {"--globalnet-cidr-range 10.0.0.0/8", "--globalnet-cidr-range requires --globalnet"},
		"cable driver": {
			"--cable-driver carrier-pigeon",
			`--cable-driver: unknown cable driver "carrier-pigeon": use one of ` + drivers.Names(),
		},
		"key from nowhere": {
			"--ipsec-psk-from none",
			"reading join file: open none: no such file or directory: specify the path of an existing join file, from which the key is read",
		},
		"two keys of stdin": {
			"--ipsec-psk-from - --signing-key-from -",
			"--ipsec-psk-from and --signing-key-from both read stdin: omit --signing-key-from, the file of --ipsec-psk-from is used for both",
		},
		"signing key": {
			"--signing-key-from none",
			"reading join file: open none: no such file or directory: specify the path of an existing join file, from which the key is read",
		},
		"key from elsewhere": {
			"--ipsec-psk-from foreign",
			"join file foreign is not a join file: subctl deploy-broker writes join files",
		},
		"format": {"-o json", "--output requires --dry-run"},
		"two mistakes": {
			"-n Bad_ --cable-driver x",
			"--namespace \"Bad_\" is not a valid namespace: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends\n--cable-driver: unknown cable driver \"x\": use one of " +
				drivers.Names(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := runIn(t, nil, []string{"hub"}, append([]string{"deploy-broker"}, strings.Fields(tc.args)...)...)
			code := cli.ExitUsage
			aboutFiles := []string{
				"no directory", "a directory", "a device", "key from nowhere", "key from elsewhere", "signing key",
			}
			if slices.Contains(aboutFiles, name) {
				code = cli.ExitFailed
			}
			require.Equal(t, result{code: code, stderr: "Error: " + tc.want + "\n"}, got)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 1)
		})
	}
}

// hub is an API server to become a broker, and the directory of its user.
type hub struct {
	server *kubetest.Server
	client client.Client
}

func newHub(t *testing.T) *hub {
	s := kubetest.Start(t)
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", s.Kubeconfig())
	return &hub{s, s.Client(t)}
}

// run runs subctl; change may replace how it connects.
func (h *hub) run(t *testing.T, change func(*globals), args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	if change != nil {
		change(g)
	}
	code := run(t.Context(), g, args)
	r := result{code, stdout.String(), stderr.String()}
	if f, err := broker.ReadOldJoinFile(broker.JoinFileName, nil); err == nil {
		for _, secret := range []broker.Secret{f.Token, f.PSK, f.SigningKey.Seed()} {
			require.NotContains(t, r.stdout+r.stderr, string([]byte(secret)))
			require.NotContains(t, r.stdout+r.stderr, base64.StdEncoding.EncodeToString(secret))
		}
	}
	return r
}

func (h *hub) done(t *testing.T, args ...string) result {
	t.Helper()
	r := h.run(t, nil, args...)
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	return r
}

// versions returns the generations of objects on the hub, which controllers that
// report status leave alone, and the resource versions of those without.
func (h *hub) versions(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range objects {
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(o.GroupVersionKind())
		require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(o), there), o.GetName())
		version := there.GetResourceVersion()
		if n := there.GetGeneration(); n > 0 {
			version = fmt.Sprint("generation ", n)
		}
		out[o.GetKind()+"/"+o.GetName()] = version
	}
	return out
}

func TestDeployBroker(t *testing.T) {
	h := newHub(t)

	t.Log("a dry run changes nothing")
	dry := h.done(t, "deploy-broker", "--dry-run", "--globalnet")
	require.Contains(t, dry.stdout, "globalnetCIDRRange: 242.0.0.0/8")
	var objects []*unstructured.Unstructured
	for _, doc := range strings.Split(dry.stdout, "---\n")[1:] {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &u.Object))
		objects = append(objects, u)
	}
	require.True(
		t,
		apierrors.IsNotFound(
			h.client.Get(t.Context(), client.ObjectKey{Name: submarinerv1.BrokerNamespace}, &corev1.Namespace{})),
	)
	require.NoFileExists(t, broker.JoinFileName)
	require.NotContains(t, dry.stdout, "kind: Secret")
	dry = h.done(t, "deploy-broker", "--dry-run", "-o", "json")
	require.Contains(t, dry.stdout, `"kind": "ValidatingAdmissionPolicy"`)
	require.NotContains(t, dry.stdout, `"globalnetCIDRRange": "242`)

	t.Log("who may not, is told what")
	r := h.run(t, nil, "deploy-broker", "--as", "nobody")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, ", create/get/patch brokers.submariner.io in namespace submariner-k8s-broker, ")
	require.Contains(
		t,
		r.stderr,
		"Error: the user of this context may not bind/escalate roles.rbac.authorization.k8s.io submariner-k8s-broker-admin in namespace submariner-k8s-broker, "+
			"bind/escalate roles.rbac.authorization.k8s.io submariner-k8s-broker-identities in namespace submariner-k8s-broker, create serviceaccounts/token in namespace submariner-k8s-broker, ",
	)
	require.Contains(t, r.stderr, ", list clusters.submariner.io in namespace submariner-k8s-broker, ")
	require.Contains(t, r.stderr, ", list pods in namespace submariner-k8s-broker, ")
	require.Contains(t, r.stderr, ", update resourcequotas/status in namespace submariner-k8s-broker: use a context ")
	require.NoFileExists(t, broker.JoinFileName)

	t.Log("interrupted anywhere, and finished by doing it again")
	for calls := 1; ; calls += 5 {
		r := h.run(t, interruptAfter(t, calls), "deploy-broker", "--globalnet")
		if r.code == cli.ExitDone {
			break
		}
		require.Equal(t, cli.ExitFailed, r.code)
		require.NoFileExists(t, broker.JoinFileName)
	}
	file, err := broker.ReadJoinFile(broker.JoinFileName, nil, time.Now())
	require.NoError(t, err)
	require.Equal(t, h.server.Config().Host, file.BrokerURL)

	t.Log("what the dry run printed is what is there, and doing it again changes nothing")
	before := h.versions(t, objects)
	again := h.done(t, "deploy-broker", "--globalnet", "--broker-url", "hub.example.com:443", "--token-ttl", "1h")
	require.Equal(t, before, h.versions(t, objects))
	require.Contains(t, again.stderr,
		" ✓ the cluster can host a broker; the pre-shared key is kept from the existing join file; the administrator's key is kept from the existing join file\n")
	require.Contains(t, again.stderr, " ✓ renamed the existing join file to broker-info.subm.")
	require.Contains(t, again.stderr, " ✓ wrote broker-info.subm: clusters can join with it until ")
	newer, err := broker.ReadJoinFile(broker.JoinFileName, nil, time.Now())
	require.NoError(t, err)
	require.Equal(t, file.PSK, newer.PSK)
	require.Equal(t, file.SigningKey, newer.SigningKey)
	hubObject := &v1alpha1.Broker{}
	require.NoError(
		t,
		h.client.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: v1alpha1.BrokerName},
			hubObject),
	)
	require.Equal(t, file.Administrator.String(), hubObject.Annotations[broker.AdministratorAnnotation])
	require.Equal(t, "https://hub.example.com:443", newer.BrokerURL)
	expires, _ := newer.Expires()
	require.WithinDuration(t, time.Now().Add(time.Hour), expires, time.Minute)

	h.withMember(t, file)
}

// withMember continues with a cluster joined.
func (h *hub) withMember(t *testing.T, file *broker.JoinFile) {
	_, err := broker.AddMember(t.Context(), h.client, submarinerv1.BrokerNamespace, "east", "uid", broker.Reservation{})
	require.NoError(t, err)
	account := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: "submariner-globalnet-info"}
	require.NoError(t, h.client.Get(t.Context(), key, account))
	account.Data["clusterinfo"] = `[{"cluster_id":"east","global_cidr":["242.0.0.0/16"]}]`
	require.NoError(t, h.client.Update(t.Context(), account))

	t.Log("globalnet is neither disabled, nor does the range shrink, and what clusters were given stays")
	r := h.run(t, nil, "deploy-broker", "--globalnet=false")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "Error: globalnet cannot be disabled while clusters have global networks (east): ")
	r = h.run(t, nil, "deploy-broker", "--globalnet", "--globalnet-cidr-range", "242.0.0.0/9")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"Error: the globalnet range cannot become 242.0.0.0/9 while clusters have networks of 242.0.0.0/8 (east): ")
	settings := func(flags ...string) v1alpha1.BrokerSpec {
		h.done(t, append([]string{"deploy-broker"}, flags...)...)
		require.NoError(t, h.client.Get(t.Context(), key, account))
		require.Contains(t, account.Data["clusterinfo"], "242.0.0.0/16")
		hub := &v1alpha1.Broker{}
		require.NoError(
			t,
			h.client.Get(t.Context(),
				client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: v1alpha1.BrokerName}, hub),
		)
		require.Equal(t, fmt.Sprintf("%q", hub.Spec.GlobalnetCIDRRange), account.Data["globalnetCidrRange"])
		return v1alpha1.BrokerSpec{
			GlobalnetEnabled:            hub.Spec.GlobalnetEnabled,
			GlobalnetCIDRRange:          hub.Spec.GlobalnetCIDRRange,
			DefaultGlobalnetClusterSize: hub.Spec.DefaultGlobalnetClusterSize,
		}
	}
	was := v1alpha1.BrokerSpec{
		GlobalnetEnabled:            true,
		GlobalnetCIDRRange:          "242.0.0.0/8",
		DefaultGlobalnetClusterSize: 65536,
	}
	require.Equal(t, was, settings(), "without flags, it stays as it is")
	was.DefaultGlobalnetClusterSize = 4096
	require.Equal(t, was, settings("--globalnet", "--globalnet-cluster-size", "4000"))
	was.GlobalnetCIDRRange = "242.0.0.0/7"
	require.Equal(t, was, settings("--globalnet", "--globalnet-cidr-range", "242.0.0.0/7"))
	require.Equal(t, was, settings("--globalnet"), "the flags have no defaults on a broker that has globalnet")

	t.Log("without the file, the key of the joined clusters must come from one of them")
	require.NoError(t, os.Rename(broker.JoinFileName, "old.subm"))
	r = h.run(t, nil, "deploy-broker", "--globalnet")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "get the key back from a joined cluster with subctl recover-broker-info")
	r = h.run(t, nil, "recover-broker-info")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"Error: clusters are joined (east), and their administrator's key is needed, but there is no join file of this broker here: specify a file with --signing-key-from, even one that has expired")
	r = h.run(t, nil, "recover-broker-info", "--signing-key-from", "old.subm")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, ": it is not joined\n")

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: broker.PSKSecretName, Namespace: submarinerv1.OperatorNamespace},
	}
	secret.Data = map[string][]byte{broker.PSKKey: []byte("another key, of another broker.")}
	require.NoError(
		t,
		h.client.Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}),
	)
	require.NoError(t, h.client.Create(t.Context(), secret))
	r = h.run(t, nil, "recover-broker-info", "--signing-key-from", "old.subm")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, ": it has joined another broker, or joined before this broker was deployed again\n")
	require.NoFileExists(t, broker.JoinFileName)

	secret.Data[broker.PSKKey] = file.PSK
	require.NoError(t, h.client.Update(t.Context(), secret))
	h.done(t, "recover-broker-info", "--signing-key-from", "old.subm")
	got, err := broker.ReadJoinFile(broker.JoinFileName, nil, time.Now())
	require.NoError(t, err)
	require.Equal(t, file.PSK, got.PSK)
	require.Equal(t, file.SigningKey, got.SigningKey)
	require.NoError(t, os.Remove(broker.JoinFileName))
	screen := h.done(t, "recover-broker-info", "--signing-key-from", "old.subm", "--broker-info", "-")
	got, err = broker.ReadJoinFile("-", strings.NewReader(screen.stdout), time.Now())
	require.NoError(t, err)
	require.Equal(t, file.PSK, got.PSK)
	require.Contains(t, screen.stderr, " ✓ wrote the join file to stdout: clusters can join with it until ")
	again := h.run(t, func(g *globals) { g.In = strings.NewReader(screen.stdout) }, "deploy-broker", "--globalnet",
		"--ipsec-psk-from", "-", "--broker-info", "-")
	require.Equal(t, cli.ExitDone, again.code, again.stderr)
	got, err = broker.ReadJoinFile("-", strings.NewReader(again.stdout), time.Now())
	require.NoError(t, err)
	require.Equal(t, file.PSK, got.PSK)
	require.NoFileExists(t, broker.JoinFileName)
	h.done(t, "deploy-broker", "--globalnet", "--ipsec-psk-from", "old.subm", "--broker-info",
		filepath.Join(t.TempDir(), "f"))

	t.Log("what is not there, and what is going away")
	r = h.run(t, nil, "recover-broker-info", "-n", "elsewhere")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"Error: there is no broker in namespace elsewhere of the cluster at "+h.server.Config().Host)
	going := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}}
	require.NoError(t, h.client.Create(t.Context(), going))
	stays := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "going", Finalizers: []string{"x.io/y"}},
	}
	require.NoError(t, h.client.Create(t.Context(), stays))
	require.NoError(t, h.client.Delete(t.Context(), going))
	r = h.run(t, nil, "deploy-broker", "-n", "going")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "Error: namespace going is being deleted: wait until it is gone, then try again\n")
}

// interruptAfter cancels the command at its n-th request that writes or reads.
func interruptAfter(t *testing.T, n int) func(*globals) {
	return func(g *globals) {
		dial := g.Connect
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			c, err := dial(ctx, cfg)
			return &interrupted{Client: c, left: n}, err
		}
	}
}

// interrupted is a client of which only some requests are answered.
type interrupted struct {
	client.Client
	left int
}

func (c *interrupted) next() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func (c *interrupted) Get(
	ctx context.Context,
	key client.ObjectKey,
	obj client.Object,
	opts ...client.GetOption,
) error {
	if err := c.next(); err != nil {
		return err
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

func (c *interrupted) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.next(); err != nil {
		return err
	}
	return c.Client.Create(ctx, obj, opts...)
}

func (c *interrupted) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := c.next(); err != nil {
		return err
	}
	return c.Client.Apply(ctx, obj, opts...)
}

// An upstream broker says nothing of its key: the cluster to ask must be named.
func TestRecoverBrokerInfoWithoutFingerprint(t *testing.T) {
	hub := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: submarinerv1.BrokerNamespace},
	}
	t.Chdir(t.TempDir())
	writeKeys(t, "old.subm")
	without := runIn(t, world{"hub": {hub}}, []string{"hub"}, "recover-broker-info")
	require.Equal(t, cli.ExitFailed, without.code)
	require.Contains(t, without.stderr,
		"Error: no cluster has joined, and there is no join file of this broker here: run subctl deploy-broker, which makes new keys\n")
	got := runIn(t, world{"hub": {hub}, "west": nil}, []string{"hub", "west"}, "recover-broker-info",
		"--signing-key-from", "old.subm")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr,
		"Error: the broker has no fingerprint of its pre-shared key: specify a cluster that has joined it with --member-context\n")
	got = runIn(t, world{"hub": {hub}, "west": nil}, []string{"hub", "west"}, "recover-broker-info",
		"--signing-key-from", "old.subm", "--member-context", "north")
	require.Equal(
		t,
		result{
			cli.ExitUsage,
			"",
			" • looking for the broker at https://hub.test:6443 …\n ✓ found the broker; members: 0\nError: there is no context \"north\" in the kubeconfig: it has hub, west\n",
		},
		got,
	)
}

// writeKeys writes a join file of no broker, with the administrator's key of the tests.
func writeKeys(t *testing.T, path string) {
	t.Helper()
	key := brokertest.Key("administrator")
	f := &broker.JoinFile{
		BrokerURL: "https://hub.test:6443", CA: []byte("PEM"), Namespace: submarinerv1.BrokerNamespace,
		Token: broker.Secret("t"), PSK: broker.Secret("p"), SigningKey: key, Administrator: key.Public(),
	}
	_, err := f.WriteFile(path, time.Now())
	require.NoError(t, err)
}
