package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/internal/kube"
	"subctl/internal/measure"
	"subctl/policy"
)

// footprintOf is set in the process that is measured.
const footprintOf = "SUBCTL_FOOTPRINT_OF"

// BenchmarkFootprint measures the memory of agents with the worst objects that a broker admits:
// as many as its quotas, of the largest size, made of the parts that take the most memory.
// A process of its own reads them over HTTP, as JSON with the most managed fields, and
// plans and reports. It has the memory limit of Go that the pods set.
func BenchmarkFootprint(b *testing.B) {
	for role, limit := range map[string]int64{"gateway": cluster.GatewayMemory, "route": cluster.RouteAgentMemory} {
		b.Run(role, func(b *testing.B) {
			for b.Loop() {
				peak := footprint(b, role, cluster.GoMemory(limit))
				measure.Record(
					b,
					measure.AtMost(role+" agent: peak memory with the worst objects that a broker admits, of its limit",
						measure.Values{100 * peak / float64(limit)}, 75, "%"),
					measure.Info(role+" agent: peak memory with the worst objects that a broker admits",
						measure.Values{peak / (1 << 20)}, "MiB"),
				)
			}
		})
	}
}

// footprint returns the peak memory of the process of a role, in bytes, with a memory limit of Go.
func footprint(b *testing.B, role string, limit int64) float64 {
	b.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^TestFootprintProcess$", "-test.v")
	child.Env = append(os.Environ(), footprintOf+"="+role, fmt.Sprintf("GOMEMLIMIT=%d", limit))
	out, err := child.CombinedOutput()
	require.NoError(b, err, string(out))
	m := regexp.MustCompile(`peak RSS (\d+)`).FindSubmatch(out)
	require.NotNil(b, m, string(out))
	peak, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(b, err)
	return peak
}

// TestFootprintProcess is the process that BenchmarkFootprint measures.
func TestFootprintProcess(t *testing.T) {
	agentRole := os.Getenv(footprintOf)
	if agentRole == "" {
		t.Skip("only in the process that BenchmarkFootprint starts")
	}
	config := &rest.Config{Host: "http://worst", Transport: worst{}, QPS: -1}
	if agentRole == "gateway" {
		e := exchange.New(exchange.Config{
			ClusterID:   "east",
			Namespace:   submarinerv1.OperatorNamespace,
			Local:       config,
			Broker:      config,
			Log:         slog.New(slog.DiscardHandler),
			NamespaceOf: func(string) string { return "broker" },
			Identity:    func() (exchange.Identity, error) { return brokertest.IdentityIn("east", "default"), nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		defer func() { cancel(); require.NoError(t, <-ended) }()
		require.Eventually(t, func() bool { s := e.Status(); return s.Connected && !s.Reading }, 10*time.Minute,
			100*time.Millisecond)
		require.Empty(t, e.Status().Refused, "the worst objects are valid")
		require.Empty(t, e.Status().Errors)
	}
	objs := worstCache(t, config)
	objs = append(objs, own()...)
	first := role.NewSnapshot("gw", objs...)
	book := policy.Compile(role.List[*v1alpha1.CablePolicies](first), first.Makers())
	r := roles.Gateway()
	if agentRole == "route" {
		r = roles.Route()
	}
	kernel := &dataplanetest.Fake{}
	for pass := range 3 {
		s := role.NewSnapshot("gw", objs...)
		s.Now = time.Unix(int64(pass), 0)
		s.Book = book
		s.PoliciesDigest = book.Digest()
		s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", Device: "eth0", MTU: 1500, PodIP: "10.111.1.1"}
		s.Standing = active("gw")
		s.Standing.Speaker = true
		p, err := r.Plan(s)
		require.NoError(t, err)
		_, err = dataplane.Sync(t.Context(), kernel, p.State)
		require.NoError(t, err)
		r.Report(s, p, mesh.NewOutcome(p, s.Now, nil, nil))
		t.Logf("%d cables, %d refused", len(mesh.PlanOf(p).Mesh.Cables.Wanted), len(mesh.PlanOf(p).Mesh.Cables.Refused))
	}
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	kib, err := strconv.Atoi(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)[1]))
	require.NoError(t, err)
	t.Logf("peak RSS %d", kib<<10)
}

// own are the objects that the cluster itself has.
func own() []client.Object {
	sub := &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{
		ClusterID:                "east",
		ClusterCIDR:              "10.111.0.0/16",
		ServiceCIDR:              "10.101.0.0/16",
		BrokerK8sApiServer:       "192.0.2.1:6443",
		BrokerK8sRemoteNamespace: "broker",
	}}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.89.1.11"}}
	return []client.Object{sub, node}
}

// worstCache returns what the cache of an agent holds.
func worstCache(t *testing.T, config *rest.Config) []client.Object {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	mapper := meta.NewDefaultRESTMapper(nil)
	var kinds []client.Object
	for _, k := range exchange.Kinds() {
		if _, ok := k.Object.(*v1alpha1.ExportedServices); ok {
			continue // see mesh.Kinds
		}
		r := k.GroupVersion.WithResource(k.Resource)
		mapper.AddSpecific(k.GroupVersion.WithKind(k.Name), r, r, meta.RESTScopeNamespace)
		mapper.AddSpecific(k.GroupVersion.WithKind(k.Name+"List"), r, r, meta.RESTScopeNamespace)
		kinds = append(kinds, k.Object)
	}
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultTransform: slimOther, HTTPClient: &http.Client{Transport: worst{}},
		DefaultNamespaces: map[string]cache.Config{submarinerv1.OperatorNamespace: {}},
	})
	require.NoError(t, err)
	go func() { _ = c.Start(t.Context()) }()
	require.True(t, c.WaitForCacheSync(t.Context()))
	reader, err := client.New(config,
		client.Options{Scheme: scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: c}})
	require.NoError(t, err)
	objs, err := kube.List(t.Context(), reader, scheme, submarinerv1.OperatorNamespace, kinds)
	require.NoError(t, err)
	return objs
}

// worst is an API server that has the worst objects, in every namespace.
type worst struct{}

// RoundTrip implements http.RoundTripper.
func (worst) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       body,
			Request:    r,
		}, nil
	}
	if r.Method != http.MethodGet {
		var body bytes.Buffer
		if r.Body != nil {
			_, _ = body.ReadFrom(r.Body)
		}
		return answer(http.StatusOK, io.NopCloser(&body))
	}
	q := r.URL.Query()
	switch {
	case strings.HasSuffix(r.URL.Path, "/"+exchange.MemoryName):
		return answer(
			http.StatusNotFound,
			io.NopCloser(
				strings.NewReader(
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`),
			),
		)
	case q.Get("sendInitialEvents") != "": // as API servers do that cannot stream lists
		return answer(
			http.StatusUnprocessableEntity,
			io.NopCloser(
				strings.NewReader(
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`),
			),
		)
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts") && q.Get("watch") == "": // the grant is not renewed
		return answer(
			http.StatusOK,
			io.NopCloser(
				strings.NewReader(
					`{"kind":"ServiceAccountList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`),
			),
		)
	case q.Get("watch") != "":
		in, out := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = out.Close() })
		return answer(http.StatusOK, in)
	}
	in, out := io.Pipe()
	onBroker := strings.Contains(r.URL.Path, "/namespaces/broker/")
	go func() {
		_ = out.CloseWithError(writeWorst(out, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], onBroker))
	}()
	return answer(http.StatusOK, in)
}

// writeWorst writes a list of the worst objects of a kind, as the broker or as a cluster has them.
func writeWorst(w io.Writer, resource string, onBroker bool) error {
	for _, k := range exchange.Kinds() {
		if k.Resource != resource {
			continue
		}
		if _, err := fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"1"},"items":[`,
			k.Name, k.GroupVersion); err != nil {
			return err
		}
		for i := range k.Quota {
			if i > 0 {
				_, _ = io.WriteString(w, ",")
			}
			o := worstObject(k, i)
			if id := o.GetLabels()[submarinerv1.ClusterIDLabel]; onBroker && k.Slotted() {
				brokertest.InSlot(o, id, i%4)
			} else if k.Free != nil {
				o.SetName(o.GetName() + "." + id + "." + submarinerv1.DefaultClusterSet)
			}
			if err := json.NewEncoder(w).Encode(o); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, "]}")
		return err
	}
	return fmt.Errorf("no kind has resource %s", resource)
}

// worstObject returns object number i of a kind.
func worstObject(k exchange.Kind, i int) client.Object {
	var o client.Object
	n := 0 // of its cluster
	switch k.Name {
	case "Endpoint":
		n = i / 4
		o = worstEndpoint(n, i)
	case "Cluster":
		n = i
		spec := submarinerv1.ClusterSpec{
			ClusterID:   fmt.Sprintf("c%d", i),
			ClusterCIDR: []string{},
			ServiceCIDR: []string{},
			GlobalCIDR:  []string{},
		}
		o = &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: spec.ClusterID}, Spec: spec}
	case "ExportedServices":
		n = i / 2
		page := &v1alpha1.ExportedServices{
			Spec: v1alpha1.ExportedServicesSpec{ClusterID: fmt.Sprintf("c%d", n), Pages: 2},
		}
		page.Name = v1alpha1.ExportedServicesName(page.Spec.ClusterID, i%2)
		o = page
	default:
		n = i / 2
		o = worstPolicy(i)
	}
	o.SetUID("0123")
	o.SetNamespace(submarinerv1.OperatorNamespace)
	o.SetResourceVersion("1")
	o.SetManagedFields(
		[]metav1.ManagedFieldsEntry{
			{
				Manager:    "m",
				Operation:  "Apply",
				APIVersion: "v1",
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(fmt.Sprintf(`{"f:%s":{}}`, strings.Repeat("x", 8000))),
			},
		},
	)
	labels := map[string]string{submarinerv1.ClusterIDLabel: fmt.Sprintf("c%d", n)}
	for j := range submarinerv1.MaxLabels {
		labels[fmt.Sprintf("l%d", j)] = strings.Repeat("v", 60)
	}
	if k.Name == "CablePolicies" {
		labels = map[string]string{
			submarinerv1.ClusterIDLabel:  fmt.Sprintf("c%d", n),
			submarinerv1.ClusterSetLabel: submarinerv1.DefaultClusterSet,
		}
	}
	o.SetLabels(labels)
	fill(k, o)
	brokertest.Sign(o, "")
	if k.Name == "Cluster" {
		g := brokertest.Grant(o.GetName())
		g.Networks = []netip.Prefix{netip.MustParsePrefix("8.0.0.0/5")} // the networks of worstEndpoint
		brokertest.Annotate(o, submarinerv1.GrantAnnotation, brokertest.Granted(g))
	}
	return o
}

// fill fills an object up to its largest size with what takes the most memory.
func fill(k exchange.Kind, o client.Object) {
	b, _ := json.Marshal(append([]any{o.GetLabels()}, k.Fields(o)...))
	room := k.MaxSize - 300 - len(b)
	switch o := o.(type) {
	case *submarinerv1.Endpoint:
		for i := 0; i < 60 && room > 0; i++ {
			o.Spec.BackendConfig[fmt.Sprintf("k%03d", i)] = strings.Repeat("x", 200)
			room -= 210
		}
	case *submarinerv1.Cluster:
		for i := 0; room > 0 && i < 1024; i++ {
			o.Spec.ClusterSets = append(o.Spec.ClusterSets, fmt.Sprintf("s%03d", i))
			room -= 7
		}
	case *v1alpha1.ExportedServices:
		s := v1alpha1.ExportedService{Namespace: "n", Name: "s"}
		for room > 0 {
			g := v1alpha1.ExportedEndpoints{Targets: []int32{}}
			for room > 0 && len(g.Pods) < 256 {
				g.Pods = append(g.Pods, v1alpha1.ExportedEndpoint{IP: "8.0.0.1"})
				room -= len(`{"ip":"8.0.0.1"},`)
			}
			s.Endpoints = append(s.Endpoints, g)
			room -= len(`{"targets":[],"pods":[]},`)
		}
		o.Spec.Services = []v1alpha1.ExportedService{s}
	case *v1alpha1.CablePolicies:
		for i := 0; room > 0 && i < 64; i++ {
			r := v1alpha1.CablePolicySpec{CableDriver: "wireguard"}
			r.LeftClusterSelector.MatchLabels = map[string]string{}
			r.RightClusterSelector.MatchLabels = map[string]string{}
			for j := range 9 {
				r.LeftClusterSelector.MatchLabels[fmt.Sprint("a", j)] = "x"
				r.RightClusterSelector.MatchLabels[fmt.Sprint("b", j)] = "y"
			}
			b, _ := json.Marshal(r)
			room -= len(b) + 1
			o.ConnectionPolicies = append(o.ConnectionPolicies, r)
		}
	}
}

func worstEndpoint(c, i int) client.Object {
	id := fmt.Sprintf("c%d", c)
	e := remoteCluster(i)
	e.Spec.ClusterID = id
	e.Spec.CableName = fmt.Sprintf("submariner-cable-%s-%x", id, i)
	e.Name = id + "-" + e.Spec.CableName
	e.Spec.BackendConfig = map[string]string{}
	e.Spec.Subnets = nil
	for j := range 64 {
		e.Spec.Subnets = append(e.Spec.Subnets, fmt.Sprintf("%d.%d.%d.0/28", 11+c>>10, c>>2&0xff, c&3<<6|j))
	}
	return e
}

func worstPolicy(i int) client.Object {
	return &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}}
}
