package agent

import (
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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/globalnet"
	"subctl/globalnet/allocator"
	"subctl/internal/kube"
	"subctl/internal/measure"
)

// writes counts the requests of a client that write.
type writes struct {
	http.RoundTripper
	statuses, others *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (w writes) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == http.MethodGet:
	case strings.HasSuffix(r.URL.Path, "/status") && r.Method == http.MethodPut: // a patch is an annotation
		w.statuses.Add(1)
	default:
		w.others.Add(1)
	}
	return w.RoundTripper.RoundTrip(r)
}

// BenchmarkGlobalnetAtOnce measures how the globalnet agent allocates addresses to 10,000 objects
// that ask for some at once, on a real API server: the requests that write, for each object, and
// the time until all statuses are written. The agent starts when the objects are there.
func BenchmarkGlobalnetAtOnce(b *testing.B) {
	const objects, namespaces = 10_000, 10_000 / globalnet.MaxOfNamespace
	admin, config := globalnetServer(b)
	for n := range namespaces {
		require.NoError(b,
			admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}))
	}
	var creating sync.WaitGroup
	next := make(chan int)
	for range 16 {
		creating.Go(func() {
			for i := range next {
				if err := admin.Create(b.Context(), &submarinerv1.GlobalEgressIP{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: fmt.Sprint("n", i%namespaces),
						Name:      fmt.Sprintf("e%05d", i),
					},
				}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range objects {
		next <- i
	}
	close(next)
	creating.Wait()
	for b.Loop() {
		counted := writes{statuses: &atomic.Int64{}, others: &atomic.Int64{}}
		config := rest.CopyConfig(config)
		config.Wrap(func(t http.RoundTripper) http.RoundTripper {
			return writes{t, counted.statuses, counted.others}
		})
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- Run(ctx, globalnetOptions(config, slog.New(slog.DiscardHandler))) }()
		require.Eventually(b, func() bool {
			if counted.statuses.Load() < objects {
				return false
			}
			var all submarinerv1.GlobalEgressIPList
			require.NoError(b, admin.List(b.Context(), &all))
			seen := map[string]bool{}
			for _, o := range all.Items {
				if len(o.Status.AllocatedIPs) != 1 || seen[o.Status.AllocatedIPs[0]] {
					return false
				}
				seen[o.Status.AllocatedIPs[0]] = true
			}
			return true
		}, 10*time.Minute, 100*time.Millisecond)
		took := time.Since(began)
		stop()
		require.NoError(b, <-ended)
		const name = "10,000 objects that ask for global addresses at once"
		measure.Record(
			b,
			// one write is for the shared addresses
			measure.AtMost(name+": writes of statuses for each",
				measure.Values{float64(counted.statuses.Load()-1) / objects}, 1, ""),
			measure.Info(name+": other writes, of lease, record and shared addresses",
				measure.Values{float64(counted.others.Load())}, "writes"),
			measure.AtMost(name+": time", measure.Values{took.Seconds()}, 60, "s"),
		)
	}
}

// globalnetMemory is set in the process that BenchmarkGlobalnetMemory measures.
const globalnetMemory = "SUBCTL_GLOBALNET_MEMORY"

// BenchmarkGlobalnetMemory measures the memory of the globalnet agent of a cluster with 50,000
// global addresses, half of which are pods' own and half of which are Services'. A process of its
// own reads pods, Services and all others over HTTP, as JSON with managed fields, into the cache
// that agents have, and allocates. It has the settings of the garbage collector that the pod has.
func BenchmarkGlobalnetMemory(b *testing.B) {
	for b.Loop() {
		child := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestGlobalnetMemoryProcess$", "-test.v")
		child.Env = append(os.Environ(), globalnetMemory+"=50000",
			fmt.Sprintf("GOMEMLIMIT=%d", cluster.GoMemory(cluster.GlobalnetMemory)),
			fmt.Sprintf("GOGC=%d", cluster.GlobalnetGC))
		out, err := child.CombinedOutput()
		require.NoError(b, err, string(out))
		m := regexp.MustCompile(`peak RSS (\d+), then (\d+)`).FindSubmatch(out)
		require.NotNil(b, m, string(out))
		mib := func(text []byte) measure.Values {
			n, err := strconv.ParseFloat(string(text), 64)
			require.NoError(b, err)
			return measure.Values{n / (1 << 20)}
		}
		measure.Record(b,
			measure.AtMost("globalnet agent with 50,000 addresses: memory", mib(m[1]), 384, "MiB"),
			measure.Info("globalnet agent with 50,000 addresses: memory when it has nothing to do", mib(m[2]), "MiB"),
		)
	}
}

// TestGlobalnetMemoryProcess is the process that BenchmarkGlobalnetMemory measures.
func TestGlobalnetMemoryProcess(t *testing.T) {
	addresses, err := strconv.Atoi(os.Getenv(globalnetMemory))
	if err != nil {
		t.Skip("only in the process that BenchmarkGlobalnetMemory starts")
	}
	o := globalnetOptions(&rest.Config{Host: "http://many", QPS: -1}, slog.New(slog.DiscardHandler))
	l := newLists(o.Role.Watches)
	opts := cacheOptions(o)
	opts.Scheme, err = kube.NewScheme()
	require.NoError(t, err)
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range o.Role.Watches {
		gvk, err := apiutil.GVKForObject(kind, opts.Scheme)
		require.NoError(t, err)
		mapper.Add(gvk, meta.RESTScopeNamespace)
		mapper.Add(gvk.GroupVersion().WithKind(gvk.Kind+"List"), meta.RESTScopeNamespace)
	}
	opts.Mapper = mapper
	opts.HTTPClient = &http.Client{Transport: manyAddresses(addresses)}
	c, err := cache.New(o.Config, opts)
	require.NoError(t, err)
	var read []toolscache.InformerSynced
	for _, kind := range o.Role.Watches {
		informer, err := c.GetInformer(t.Context(), kind)
		require.NoError(t, err)
		follows := l.recording(kind, changes)
		handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			follows.Create(event.CreateEvent{Object: o.(client.Object)})
		}})
		require.NoError(t, err)
		read = append(read, handler.HasSynced)
	}
	go func() { _ = c.Start(t.Context()) }()
	require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), read...))
	var memory allocator.AddressMemory
	for pass := range 5 {
		s := role.NewSnapshot[role.Object]("node")
		for _, kind := range o.Role.Watches {
			s.SetSorted(l.list(kind))
		}
		s.Now = time.Unix(int64(pass), 0)
		s.Previous = memory
		p, err := o.Role.Plan(s)
		require.NoError(t, err)
		memory = p.Decisions.(*allocator.Addresses).Memory
		require.Equal(t, addresses, p.Decisions.(*allocator.Addresses).Used["GlobalIngressIP"])
		r := o.Role.Report(s, p, mesh.NewOutcome(p, s.Now, nil, nil))
		require.Len(t, r.Apply, 1, "only the shared addresses are missing")
		require.Empty(t, r.UpdateStatus)
		require.Empty(t, r.Annotate)
		time.Sleep(time.Second)
	}
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	kib := func(what string) int {
		n, err := strconv.Atoi(string(regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(status)[1]))
		require.NoError(t, err)
		return n << 10
	}
	t.Logf("peak RSS %d, then %d", kib("VmHWM"), kib("VmRSS"))
}

// manyAddresses is an API server of a cluster with so many global addresses, which streams lists.
type manyAddresses int

// RoundTrip implements http.RoundTripper.
func (n manyAddresses) RoundTrip(r *http.Request) (*http.Response, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	in, out := io.Pipe()
	send := func(event string, o client.Object) error {
		gvk, err := apiutil.GVKForObject(o, scheme)
		if err != nil {
			return err
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		o.SetResourceVersion("1")
		return json.NewEncoder(out).Encode(map[string]any{"type": event, "object": o})
	}
	go func() {
		like := n.send(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], func(o client.Object) {
			o.SetUID(types.UID(o.GetNamespace() + "/" + o.GetName()))
			o.SetManagedFields(
				[]metav1.ManagedFieldsEntry{
					{
						Manager:    "m",
						Operation:  "Apply",
						APIVersion: "v1",
						FieldsType: "FieldsV1",
						FieldsV1:   metav1.NewFieldsV1(fmt.Sprintf(`{"f:%s":{}}`, strings.Repeat("x", 1000))),
					},
				},
			)
			_ = send("ADDED", o) // the reader misses it
		})
		like.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		_ = send("BOOKMARK", like) // the reader never has all
		<-r.Context().Done()
		_ = out.Close()
	}()
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       in,
		Request:    r,
	}, nil
}

// send sends all objects of a resource. It returns an empty object of the kind.
func (n manyAddresses) send(resource string, add func(client.Object)) client.Object {
	named := func(i int, prefix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%100),
			Name:      fmt.Sprintf("%sshop-frontend-%05d", prefix, i),
			Labels: map[string]string{
				"app.kubernetes.io/name":    "frontend",
				"app.kubernetes.io/part-of": "shop",
				"pod-template-hash":         fmt.Sprintf("%08x", i/3),
				"team":                      fmt.Sprint(i % 100),
			},
			Annotations: map[string]string{
				"example.com/checksum":             strings.Repeat("0", 64),
				submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP,
			},
		}
	}
	podIP := func(i int) string { return netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}).String() }
	address := func(i int) string { return netip.AddrFrom4([4]byte{242, 1, byte((i + 256) >> 8), byte(i)}).String() }
	allocated := func(ip string) []metav1.Condition {
		return []metav1.Condition{
			{
				Type:               submarinerv1.ConditionAllocated,
				Status:             metav1.ConditionTrue,
				Reason:             submarinerv1.ReasonAllocated,
				Message:            "allocated " + ip,
				LastTransitionTime: metav1.Unix(0, 0),
			},
		}
	}
	half := int(n) / 2
	switch resource {
	case "submariners":
		add(
			&v1alpha1.Submariner{
				ObjectMeta: metav1.ObjectMeta{Name: "submariner", Namespace: submarinerv1.OperatorNamespace},
				Spec:       v1alpha1.SubmarinerSpec{GlobalCIDR: "242.1.0.0/16", ClusterCIDR: "10.244.0.0/16"},
			},
		)
		return &v1alpha1.Submariner{}
	case "pods":
		for i := range half {
			p := &corev1.Pod{
				ObjectMeta: named(i, ""),
				Status: corev1.PodStatus{
					Phase:  corev1.PodRunning,
					PodIP:  podIP(i),
					PodIPs: []corev1.PodIP{{IP: podIP(i)}},
				},
			}
			p.Annotations[submarinerv1.GlobalIPAnnotation] = address(i)
			p.Spec.Containers = []corev1.Container{
				{
					Name:  "c",
					Image: "registry.example.com/shop/frontend:v1",
					Env:   []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 500)}},
				},
			}
			add(p)
		}
		return &corev1.Pod{}
	case "services":
		for i := range half {
			s := &corev1.Service{
				ObjectMeta: named(i, ""),
				Spec: corev1.ServiceSpec{
					ClusterIP: "10.96.0.9",
					Selector:  map[string]string{"app": "frontend"},
					Ports:     []corev1.ServicePort{{Port: 80}},
				},
			}
			s.Annotations[submarinerv1.GlobalIPAnnotation] = address(half + i)
			add(s)
		}
		return &corev1.Service{}
	case "endpointslices":
		for i := range half {
			o := &discoveryv1.EndpointSlice{
				ObjectMeta:  named(i, ""),
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
			}
			o.Labels[discoveryv1.LabelServiceName] = o.Name
			o.Endpoints = []discoveryv1.Endpoint{
				{
					Addresses: []string{podIP(i)},
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: o.Name, Namespace: o.Namespace},
				},
			}
			add(o)
		}
		return &discoveryv1.EndpointSlice{}
	case "serviceexports":
		for i := range half {
			o := &mcsv1alpha1.ServiceExport{ObjectMeta: named(i, "")}
			o.Status.Conditions = []metav1.Condition{
				{
					Type:               "Valid",
					Status:             metav1.ConditionTrue,
					Reason:             "Valid",
					Message:            "the Service can be exported",
					LastTransitionTime: metav1.Unix(0, 0),
				},
				{
					Type:               "Ready",
					Status:             metav1.ConditionTrue,
					Reason:             "Exported",
					Message:            "other clusters reach the Service at " + address(half+i),
					LastTransitionTime: metav1.Unix(0, 0),
				},
			}
			add(o)
		}
		return &mcsv1alpha1.ServiceExport{}
	case "globalingressips":
		for i := range int(n) {
			prefix := "pod-"
			owner := "Pod"
			version := "v1"
			if i >= half {
				prefix = ""
				owner = mcsv1alpha1.ServiceExportKindName
				version = mcsv1alpha1.GroupVersion.String()
			}
			o := &submarinerv1.GlobalIngressIP{ObjectMeta: named(i%half, prefix)}
			o.Annotations = nil
			o.Labels = map[string]string{cluster.ManagedByLabel: "subctl"}
			name := strings.TrimPrefix(o.Name, "pod-")
			o.Spec.Target = submarinerv1.TargetHeadlessServicePod
			o.Spec.PodRef = &corev1.LocalObjectReference{Name: name}
			if i >= half {
				o.Labels[submarinerv1.ServiceRefLabel] = name
				o.Spec.Target = submarinerv1.TargetClusterIPService
				o.Spec.PodRef = nil
				o.Spec.ServiceRef = &corev1.LocalObjectReference{Name: name}
			}
			o.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: version, Kind: owner, Name: name, UID: types.UID(o.Namespace + "/" + name)},
			}
			o.Status.AllocatedIP = address(i)
			o.Status.Conditions = allocated(address(i))
			add(o)
		}
		return &submarinerv1.GlobalIngressIP{}
	case "nodes":
		return &corev1.Node{}
	case "namespaces":
		for i := range 100 {
			add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%d", i)}})
		}
		return &corev1.Namespace{}
	case "globalegressips":
		return &submarinerv1.GlobalEgressIP{}
	}
	return &submarinerv1.ClusterGlobalEgressIP{}
}
